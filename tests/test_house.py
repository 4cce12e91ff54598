"""The source stays within the limits of tests/helpers/house.py; `make house` prints the counts."""

import pytest

from helpers import house

LIMITED = [count for count in house.counts() if count.name in house.LIMITS]


@pytest.mark.parametrize("count", LIMITED, ids=lambda count: count.name)
def test_a_count_of_the_source_is_within_its_limit(count):
    assert count.value <= house.LIMITS[count.name], "\n".join((str(count), *count.places))


def test_every_limit_belongs_to_a_count_and_every_package_to_one_level():
    assert house.LIMITS.keys() <= {count.name for count in house.counts()}
    packages = {
        name.split(".")[1] for name, file in house.source_files().items() if file.name == "__init__.py" and "." in name
    }
    listed = [package for level in house.LEVELS for package in level]
    assert sorted(listed) == sorted(packages | {"advise", "compare", "toy"})


def test_circles_and_upward_imports_are_found_wherever_they_stand(tmp_path, monkeypatch):
    files = {
        "cli/__init__.py": "",
        "cli/main.py": "from maskwise.models import layers",
        "models/__init__.py": "",
        "models/layers.py": "def f():\n    from maskwise.models.loop import g",
        "models/loop.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import maskwise.models.layers\n"
        "from maskwise.cli import main",
        "records/__init__.py": "from maskwise.kernels import gate",
        "kernels/gate.py": "",
    }
    for name, text in files.items():
        (tmp_path / "maskwise" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "maskwise" / name).write_text(text)
    monkeypatch.setattr(house, "SOURCE", tmp_path)
    house.source_files.cache_clear()
    house.import_graph.cache_clear()
    try:
        assert house.upward_imports() == [
            "maskwise.models.loop -> maskwise.cli.main",
            "maskwise.records -> maskwise.kernels.gate",
        ]
        assert house.circular_imports() == [["maskwise.cli.main", "maskwise.models.layers", "maskwise.models.loop"]]
    finally:
        house.source_files.cache_clear()
        house.import_graph.cache_clear()
