"""What train leaves, and the two commands that use it."""

import json
import shutil

import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from sciformer import cli, data
from sciformer.functional import InputError
from sciformer.lab.runs import load_run
from sciformer.teach.trained import HERE

SIZES = [
    "--profile",
    "quick",
    "--steps",
    "2",
    "--embed-dim",
    "8",
    "--num-layers",
    "1",
    "--num-heads",
    "2",
    "--batch-size",
    "4",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for task, more in (("mnist", []), ("shakespeare", ["--length", "8"])):
        assert cli.main(["train", task, *SIZES, *more, "--out", str(folder / task)]) == 0
    return folder


@pytest.mark.parametrize(("task", "command"), [("mnist", "read"), ("shakespeare", "write")])
def test_the_card_tells_setting_data_and_metrics(task, command, runs):
    card, history = (runs / task / "README.md").read_text(), json.loads((runs / task / "history.json").read_text())
    assert f"sciformer {command} FOLDER" in card
    assert "| embed dim | 8 |" in card
    assert "seed 0: 2 steps" in card
    for name, value in history["metrics"].items():
        assert f"| {name.replace('_', ' ')} | {value:.4g} |" in card
    parameters = sum(p.numel() for p in load_run(runs / task)[0].parameters())
    assert f"| parameters | {parameters:,} |" in card


def test_write_goes_on_from_the_prompt_as_generate_does(runs, capsys):
    model, _, _ = load_run(runs / "shakespeare")
    characters = data.shakespeare("val")[1]
    prompt = characters.encode("ROMEO:")[None]
    for words, options in (
        (["--temperature", "0"], {"temperature": 0}),
        (["--seed", "3", "--top-k", "5", "--temperature", "1.5"], {"temperature": 1.5, "top_k": 5}),
    ):
        assert cli.main(["write", str(runs / "shakespeare"), "--prompt", "ROMEO:", "--count", "30", *words]) == 0
        wanted = model.generate(prompt, 30, generator=torch.Generator().manual_seed(3), **options)
        assert capsys.readouterr().out == characters.decode(wanted[0]) + "\n"


def test_read_tells_the_likeliest_digits(runs, tmp_path, capsys):
    digit = data.mnist("test")[0][0]
    Image.fromarray((255 * digit[0]).byte().numpy()).save(tmp_path / "digit.png")
    assert cli.main(["read", str(runs / "mnist"), str(tmp_path / "digit.png")]) == 0
    model, _, _ = load_run(runs / "mnist")
    with torch.no_grad():
        first, second, third = model.eval()(digit[None]).softmax(dim=-1)[0].topk(3).indices.tolist()
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'digit.png'}: {first} (")
    assert f"then {second} (" in said
    assert f", {third} (" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["write", "{runs}/mnist"], "`write` cannot use {runs}/mnist, whose model reads images: use `read`"),
        (["read", "{runs}/shakespeare", "x.png"], "whose model writes text: use `write`"),
        (["write", "{runs}/shakespeare", "--prompt", "né"], "character 'é' at position 1 is not in the vocabulary"),
        (["write", "{runs}/shakespeare", "--prompt", ""], "prompt"),
        (["write", "{runs}/shakespeare", "--temperature", "nan"], "temperature must be a finite number"),
        (["write", "{runs}/nothing"], "No such file or directory: '{runs}/nothing/history.json'"),
        (["read", "{runs}/mnist", "{runs}/mnist/history.json"], "history.json is no picture that can be read"),
    ],
)
def test_what_cannot_be_done_is_one_line(words, says, runs, capsys):
    assert cli.main([word.replace("{runs}", str(runs)) for word in words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says.replace("{runs}", str(runs)) in line


@pytest.mark.parametrize("model", ["namer", "answerer"])
@pytest.mark.parametrize("words", [["write"], ["read", "digit.png"]], ids=["write", "read"])
def test_an_encoder_decoder_is_for_neither(words, model, capsys):
    command, *more = words
    assert cli.main([command, str(HERE / model), *more]) == 1
    assert "does neither: `write` is for language models, `read` for image models" in capsys.readouterr().err


def test_a_run_of_an_earlier_version_lacks_newer_fields(runs, tmp_path):
    shutil.copytree(runs / "mnist", tmp_path, dirs_exist_ok=True)
    content = json.loads((tmp_path / "history.json").read_text())
    del content["config"]["test_size"]
    (tmp_path / "history.json").write_text(json.dumps(content))
    assert load_run(tmp_path)[1] == load_run(runs / "mnist")[1]
    del content["config"]["patch_size"]
    (tmp_path / "history.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="a setting that this version does not know"):
        load_run(tmp_path)


def test_damaged_and_foreign_weights_are_named(runs, tmp_path, capsys):
    for name in ("history.json", "model.safetensors"):
        (tmp_path / name).write_bytes((runs / "shakespeare" / name).read_bytes())
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert cli.main(["write", str(tmp_path)]) == 1
    assert "model.safetensors is not a whole file of weights" in capsys.readouterr().err
    (tmp_path / "model.safetensors").write_bytes((runs / "mnist" / "model.safetensors").read_bytes())
    assert cli.main(["write", str(tmp_path)]) == 1
    assert "model.safetensors holds the weights of another model" in capsys.readouterr().err


def test_stream_gives_each_token_as_it_is_chosen(runs):
    from sciformer.models.decoding import stream

    model, _, _ = load_run(runs / "shakespeare")
    prompt = torch.zeros(2, 3, dtype=torch.int64)
    tokens = stream(model, prompt, 20, temperature=0)
    some = [next(tokens) for _ in range(4)]
    assert_close(torch.stack(some, dim=1), model.generate(prompt, 4, temperature=0)[:, 3:])
