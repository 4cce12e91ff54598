"""What appended masks, distance and joint filling do to a real masked language model: AntiBERTy (26 M parameters).

1. Fourteen variable domains of seven approved antibodies (both chains; listed below, transcribed by hand, so a residue
   may be wrong). The chain is the unit of every interval: a t interval over 14 chains.
2. Residues at eight places of a chain are masked one at a time. Accuracy and negative log-likelihood (nats) of the true
   residue with 0, 2, 20, 100 and 200 masks appended after the chain, and with 200 residues of the next chains there.
   The model was trained with about 15 % masks inside a chain and never with masks after it.
3. Locality: ten further residues are masked, the nearest ones or others at least 15 places away.
4. Total correlation of two masked residues 1, 4 and 16 places apart: KL(p(x, y) || p(x) p(y)) in nats, summed over
   the 20 amino acids, with p(x, y) = p(x) p(y | x).

CPU, 10 minutes on two idle cores, after masked_lm_checkpoint.py wrote the checkpoint:
    python recipes/studies/antibody_model.py antiberty --out antibody.json
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from scipy import stats

import maskwise as mw
from maskwise.models.model import Model

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
# Heavy and light chain of trastuzumab, adalimumab, rituximab, bevacizumab, cetuximab, pembrolizumab, nivolumab.
CHAINS = [
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWG"
    "GDGFYAMDYWGQGTLVTVSS",
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK",
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVS"
    "YLSTASSLDYWGQGTLVTVSS",
    "DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYCQRYNRAPYTFGQGTKVEIK",
    "QVQLQQPGAELVKPGASVKMSCKASGYTFTSYNMHWVKQTPGRGLEWIGAIYPGNGDTSYNQKFKGKATLTADKSSSTAYMQLSSLTSEDSAVYYCARST"
    "YYGGDWYFNVWGAGTTVTVSA",
    "QIVLSQSPAILSASPGEKVTMTCRASSSVSYIHWFQQKPGSSPKPWIYATSNLASGVPVRFSGSGSGTSYSLTISRVEAEDAATYYCQQWTSNPPTFGGGTKLEIK",
    "EVQLVESGGGLVQPGGSLRLSCAASGYTFTNYGMNWVRQAPGKGLEWVGWINTYTGEPTYAADFKRRFTFSLDTSKSTAYLQMNSLRAEDTAVYYCAKYP"
    "HYYGSSHWYFDVWGQGTLVTVSS",
    "DIQMTQSPSSLSASVGDRVTITCSASQDISNYLNWYQQKPGKAPKVLIYFTSSLHSGVPSRFSGSGSGTDFTLTISSLQPEDFATYYCQQYSTVPWTFGQGTKVEIK",
    "QVQLKQSGPGLVQPSQSLSITCTVSGFSLTNYGVHWVRQSPGKGLEWLGVIWSGGNTDYNTPFTSRLSINKDNSKSQVFFKMNSLQSNDTAIYYCARALT"
    "YYDYEFAYWGQGTLVTVSA",
    "DILLTQSPVILSVSPGERVSFSCRASQSIGTNIHWYQQRTNGSPRLLIKYASESISGIPSRFSGSGSGTDFTLSINSVESEDIADYYCQQNNNWPTTFGAGTKLELK",
    "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVYYCARRD"
    "YRFDMGFDYWGQGTTVTVSS",
    "EIVLTQSPATLSLSPGERATLSCRASKGVSTSGYSYLHWYQQKPGQAPRLLIYLASYLESGVPARFSGSGSGTDFTLTISSLEPEDFAVYYCQHSRDLPLTFGGGTKVEIK",
    "QVQLVESGGGVVQPGRSLRLDCKASGITFSNSGMHWVRQAPGKGLEWVAVIWYDGSKRYYADSVKGRFTISRDNSKNTLFLQMNSLRAEDTAVYYCATNDDYWGQGTLVTVSS",
    "EIVLTQSPATLSLSPGERATLSCRASQSVSSYLAWYQQKPGQAPRLLIYDASNRATGIPARFSGSGSGTDFTLTISSLEPEDFAVYYCQQSSNWPRTFGQGTKVEIK",
]
PLACES = [0.08, 0.2, 0.32, 0.44, 0.56, 0.68, 0.8, 0.92]  # of the masked residues, as shares of the chain
MASKS = (0, 2, 20, 100, 200)
APART = (1, 4, 16)
FAR = 15  # places between a masked residue and those that are hidden far from it
HIDDEN = 10

Edit = Callable[[list[int], int], list[int]]  # a chain with its residue masked, and the place -> what the model sees


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and 95 % t interval over chains."""
    mean, error = statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return mean, mean - half, mean + half


def single_masks(model: Model, chains: list[list[int]], edit: Edit) -> list[tuple[float, float]]:
    """Accuracy and mean negative log-likelihood of each chain, one masked residue at a time."""
    found = []
    for ids in chains:
        places = [int(share * len(ids)) for share in PLACES]
        seen = [edit([*ids[:place], model.mask_id, *ids[place + 1 :]], place) for place in places]
        logs = [one.log_softmax(-1)[0] for one in model.predict(seen, [[place] for place in places])]
        right = [float(log.argmax() == ids[place]) for log, place in zip(logs, places, strict=True)]
        nll = [-float(log[ids[place]]) for log, place in zip(logs, places, strict=True)]
        found.append((statistics.mean(right), statistics.mean(nll)))
    return found


def hiding(model: Model, near: bool) -> Edit:
    def edit(ids: list[int], place: int) -> list[int]:
        by_distance = sorted((other for other in range(len(ids)) if other != place), key=lambda o: abs(o - place))
        far = [other for other in by_distance if abs(other - place) >= FAR]
        chosen = set((by_distance if near else far)[:HIDDEN])
        return [model.mask_id if other in chosen else token for other, token in enumerate(ids)]

    return edit


def total_correlation(model: Model, ids: list[int], first: int, second: int, letters: list[int]) -> float:
    """Of the model's joint distribution of two masked residues, over the amino acids."""
    masked = list(ids)
    masked[first] = masked[second] = model.mask_id
    filled = []
    for letter in letters:
        one = list(masked)
        one[first] = letter
        filled.append(one)
    both, *conditionals = model.predict([masked, *filled], [[first], *[[second]] * len(letters)])
    p_first = both[0][letters].softmax(-1)
    p_second_given = torch.stack([one[0][letters].softmax(-1) for one in conditionals])  # [20, 20]
    joint = p_first[:, None] * p_second_given
    product = p_first[:, None] * joint.sum(0)
    return float((joint * (joint / product).log()).nan_to_num().sum())


def study(name: str) -> dict[str, dict[str, tuple[float, float, float]]]:
    model = mw.open(name)
    chains = [model.tokenizer(" ".join(chain))["input_ids"] for chain in CHAINS]
    letters = [model.tokenizer.convert_tokens_to_ids(letter) for letter in AMINO_ACIDS]
    follow = {
        id(ids): [token for other in chains[n + 1 :] + chains[:n] for token in other][:200]
        for n, ids in enumerate(chains)
    }
    conditions: dict[str, Edit] = {
        f"{masks} masks appended": lambda ids, place, masks=masks: [*ids, *[model.mask_id] * masks] for masks in MASKS
    }
    conditions["10 nearest residues hidden"] = hiding(model, near=True)
    conditions["10 distant residues hidden"] = hiding(model, near=False)
    rows, base = {}, None
    for condition, edit in conditions.items():
        rows[condition], base = summary(single_masks(model, chains, edit), base)
        print(condition, rows[condition], flush=True)
    longer = [(ids, follow[id(ids)]) for ids in chains]
    visible = [single_masks(model, [ids], lambda seen, place, end=end: [*seen, *end])[0] for ids, end in longer]
    rows["200 residues of other chains appended"], _ = summary(visible, base)
    for apart in APART:
        values = [total_correlation(model, ids, len(ids) // 2, len(ids) // 2 + apart, letters) for ids in chains]
        rows[f"total correlation, {apart} apart"] = {"nats": interval(values)}
        print(apart, rows[f"total correlation, {apart} apart"], flush=True)
    return rows


def summary(
    values: list[tuple[float, float]], base: list[tuple[float, float]] | None
) -> tuple[dict[str, tuple[float, float, float]], list[tuple[float, float]]]:
    """Accuracy, likelihood and their paired differences from the chains without anything appended."""
    base = values if base is None else base
    names = ("accuracy", "nll")
    row = {name: interval([value[n] for value in values]) for n, name in enumerate(names)}
    if base is not values:
        for n, name in enumerate(names):
            differences = [after[n] - before[n] for after, before in zip(values, base, strict=True)]
            row[f"change of {name}"] = interval(differences)
    return row, base


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--out", type=Path, required=True)
    given = arguments.parse_args()
    given.out.write_text(json.dumps(study(given.model), indent=1))
