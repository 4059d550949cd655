"""What was measured: as tables in Markdown, and as pictures."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.busy import COURSE
from sciformer.lab.claims import header, row
from sciformer.lab.roofline import Machine
from sciformer.teach.plotting import COLORS, figure_of, roofline

RECORD, ROOFLINE = "benchmarks.json", "roofline.png"
MARKERS = "osD^v<>PX"
DASHES = ((0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 3)))


def load(folder: Path) -> dict[str, Any] | None:
    """What was measured, or None if nothing was."""
    path = folder / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def label(measured: Mapping[str, Any]) -> str:
    """Name and form of a contestant."""
    return f"{measured['contestant']}, {measured['form']}"


def number(value: float) -> str:
    """Three digits or, from 1000 on, all of them."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def share(measured: Mapping[str, Any]) -> str:
    """How much of the time the machine needs at least, in brackets; nothing where that was not counted."""
    return f" ({measured['share']:.0%})" if "share" in measured else ""


def limits(roof: Mapping[str, Any]) -> str:
    """What the machine can do at most, and what the shares mean, in two sentences."""
    in_caches, from_memory = max(speed for _, speed in roof["copies"]), roof["copies"][-1][1]
    return (
        f"In the same run the fastest float32 matrix product reached {roof['flops'] / 1e9:,.0f} · 10⁹ operations a "
        f"second, and the fastest copy {in_caches / 1e9:,.0f} · 10⁹ bytes a second within the caches and "
        f"{from_memory / 1e9:,.0f} · 10⁹ beyond them. The percentage in brackets is the share of the measured time "
        "that the same operations would take if each ran at the limit that binds it, matrix products or bytes moved."
    )


def where(content: Mapping[str, Any]) -> str:
    """The machine and the versions, in a sentence."""
    machine = content["machine"]
    named = ", ".join(f"{name} {version}" for name, version in content["versions"].items() if version)
    return (
        f"Measured on {content['device']} ({machine['processor']}, {machine['cores']} cores, {machine['gigabytes']} "
        f"GB) with {named}, on {content['date']} at commit {content['commit']}."
    )


def layers_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One row a contestant, one column a length."""
    lengths = sorted({measured["length"] for measured in rows})
    found = {(label(measured), measured["length"]): measured for measured in rows}

    def cell(measured: Mapping[str, Any]) -> str:
        if "why not" in measured:
            return measured["why not"]
        shown = f"{number(measured['milliseconds'])} ms{share(measured)}, {number(measured['megabytes'])} MB"
        ours = found.get((measured["beside"], measured["length"]), {})
        if "milliseconds" in ours:
            shown += f"<br>{measured['milliseconds'] / ours['milliseconds']:.2f} × the time of {measured['beside']}"
        return shown

    lines = header(["one layer", *(f"{length:,} tokens" for length in lengths)])
    for name in dict.fromkeys(label(measured) for measured in rows):
        peer = found[name, lengths[0]]["kind"] == "peer"
        lines.append(row([name if peer else f"**{name}**", *(cell(found[name, length]) for length in lengths)]))
    return "\n".join(lines)


def models_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One row a model."""
    lines = header(["model", "parameters", "training steps a second", "time"])
    ours = {measured["task"]: measured["steps per second"] for measured in rows if measured["kind"] == "ours"}
    for measured in rows:
        name = f"{measured['task']}: {measured['model']}"
        if "why not" in measured:
            lines.append(row([name, "–", measured["why not"], "–"]))
            continue
        speed, peer = measured["steps per second"], measured["kind"] == "peer"
        ratio = f"{ours[measured['task']] / speed:.2f} × ours" if peer else "–"
        shown = f"{number(speed)}{share(measured)}"
        lines.append(row([name if peer else f"**{name}**", f"{measured['parameters']:,}", shown, ratio]))
    return "\n".join(lines)


def busy_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One row for each training and each way in which threads may wait; the course's way is bold."""
    cells: dict[tuple[str, str], list[str]] = {}
    for measured in rows:
        way = f"**{measured['threads']}**" if measured["threads"] == COURSE else measured["threads"]
        of_way = cells.setdefault((measured["task"], way), [])
        quiet = next(m for m in rows if (m["task"], m["threads"]) == (measured["task"], measured["threads"]))
        ratio = "" if measured is quiet else f", {measured['seconds'] / quiet['seconds']:.1f} ×"
        of_way.append(f"{number(measured['seconds'])} s{ratio}")
    lines = header(["training", "threads", "quiet", "beside one busy process", "beside two"])
    return "\n".join([*lines, *(row([*names, *of_way]) for names, of_way in cells.items())])


def table(content: Mapping[str, Any]) -> str:
    """All that was measured; ours are in bold."""
    missing = "not measured yet."
    return "\n\n".join(
        (
            where(content),
            limits(content["roof"]) if "roof" in content else f"What the machine allows at most: {missing}",
            layers_table(content["layers"]),
            models_table(content["models"]),
            busy_table(content["busy"]) if "busy" in content else f"Trainings beside busy processes: {missing}",
        )
    )


def section(content: Mapping[str, Any] | None) -> str:
    """What the page of results shows: the picture and the table, or that there is none yet."""
    if content is None:
        return "Not measured yet."
    drawn = {name: alt for name, (alt, _) in PICTURES.items() if name != ROOFLINE or "roof" in content}
    return "".join(f"![{alt}]({name})\n\n" for name, alt in drawn.items()) + table(content)


def styles(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """How each contestant is drawn: ours in colour, peers grey and dashed; where a colour comes again, it is hollow."""
    looks: dict[str, dict[str, Any]] = {}
    for kind in ("ours", "peer"):
        for n, name in enumerate(
            dict.fromkeys(measured["contestant"] for measured in rows if measured["kind"] == kind)
        ):
            looks[name] = {"marker": MARKERS[n % len(MARKERS)], "markersize": 6, "linewidth": 1.5}
            if kind == "ours":
                looks[name]["color"] = COLORS[n % len(COLORS)]
            else:
                looks[name] |= {"color": "0.45", "linestyle": DASHES[n % len(DASHES)]}
            if kind == "peer" or n >= len(COLORS):
                looks[name]["markerfacecolor"] = "white"
    return looks


def growth(content: Mapping[str, Any]) -> Figure:
    """Time and memory against length, for each form: ours in colour, peers grey and dashed."""
    rows = [measured for measured in content["layers"] if measured["form"] != "forward"]
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), sharex=True, sharey="row", layout="constrained")
    lines, looks = {}, styles(rows)
    for name, style in looks.items():
        for form, pair in zip(("fast", "readable"), axes.T, strict=True):
            points = [m for m in rows if label(m) == f"{name}, {form}" and "why not" not in m]
            for ax, what in zip(pair, ("milliseconds", "megabytes"), strict=True):
                lines[name] = ax.plot([m["length"] for m in points], [m[what] for m in points], **style)[0]
    lengths = sorted({measured["length"] for measured in rows})
    for ax in axes.flat:
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(lengths, labels=[f"{length:,}" for length in lengths])
        ax.set_xticks([], minor=True)
        ax.grid(alpha=0.3)
    axes[0, 0].set(title="fast form", ylabel="milliseconds")
    axes[0, 1].set(title="readable form: holds all weights")
    axes[1, 0].set(xlabel="tokens", ylabel="megabytes")
    axes[1, 1].set(xlabel="tokens")
    figure.legend(lines.values(), lines, loc="outside right center", frameon=False, handlelength=4)
    figure.suptitle("One layer of attention, forward and backward; peers are grey and dashed")
    return figure


def below_the_roof(content: Mapping[str, Any]) -> Figure:
    """What each fast form reaches of what the machine can do, at the longest length that all of ours went."""
    rows = [m for m in content["layers"] if m["form"] == "fast"]
    refused = {m["length"] for m in rows if m["kind"] == "ours" and "why not" in m}
    length = max({m["length"] for m in rows} - refused)
    found = {m["contestant"]: m for m in rows if m["length"] == length and "flops" in m}
    looks = {name: style | {"linestyle": "none"} for name, style in styles(content["layers"]).items()}
    points = {name: (m["flops"], m["bytes"], m["milliseconds"] / 1000) for name, m in found.items()}
    _, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    title = f"One layer of attention, {length:,} tokens, forward and backward; peers are grey"
    return figure_of(roofline(Machine(**content["roof"]), points, styles=looks, title=title, ax=ax))


#: By the file's name, what a picture shows and what draws it.
PICTURES: dict[str, tuple[str, Callable[[Mapping[str, Any]], Figure]]] = {
    "benchmarks.png": ("Time and memory of one layer against length", growth),
    ROOFLINE: ("What each fast form reaches of what the machine can compute and move", below_the_roof),
}
