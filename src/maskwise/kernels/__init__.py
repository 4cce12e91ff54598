"""The Triton kernels, one file each, and the gate through which they are reached.

Only the gate is imported without Triton; a kernel's file is imported on the first call of `gate.kernel` that names it.
"""
