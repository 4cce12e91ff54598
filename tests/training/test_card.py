"""The card of what was trained: what it says of the method and of a base that carries an adapter itself."""

from maskwise.training.checked_settings import settings_from
from maskwise.training.model_card import trained_card
from maskwise.training.training_settings import TrainSettings

DATA = {"file": "quick.jsonl", "sha256": "0" * 64}


def result(model, **counts):
    return {"model": model, "held_out": 0, "before": None, **counts}


def test_an_adapted_base_is_exported_before_peft_alone_can_load_it():
    plain, adapted = (
        trained_card(result(name, pairs=3), settings_from("quick", {}), DATA, None)
        for name in ("tiny-llada", "tiny-llada+distracted")
    )
    assert 'from_pretrained("tiny-llada")' in plain and "export" not in plain
    assert "maskwise export tiny-llada+distracted --out BASE" in adapted and 'from_pretrained("BASE")' in adapted


def test_the_method_is_named():
    paper = trained_card(result("tiny-llada", pairs=3), settings_from("paper-base", {}), DATA, None)
    ours = trained_card(result("tiny-llada", pairs=3), settings_from("quick", {}), DATA, None)
    documents = trained_card(result("tiny-llada", rows=3), TrainSettings(), DATA, None)
    assert "2511.21338)." in paper and "anchored at its own answers" in ours
    assert "masked diffusion on documents" in documents
