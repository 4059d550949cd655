"""Records written by hand, of the form that the package writes."""

import json

from sciformer.lab.records import record_file


def write_record(folder, name, profile, figures):
    """Write a record of one metric.

    Args:
        figures: for each arm, None for the only one, the metric's name and its value for each seed.
    """
    (count,) = {len(values) for _, values in figures.values()}
    runs = [
        {
            **({} if arm is None else {"arm": arm}),
            "seed": seed,
            "metrics": {metric: values[seed]},
            "curves": {"loss": [[1, 0.5]]},
            "parameters": 1000,
            "seconds": 3.0,
        }
        for arm, (metric, values) in figures.items()
        for seed in range(count)
    ]
    content = {
        "name": name,
        "profile": profile,
        **({} if None in figures else {"arms": list(figures)}),
        "config": {},
        "seeds": list(range(count)),
        "runs": runs,
        "seconds": 3.0,
        "device": "CPU",
        "versions": {},
        "commit": None,
        "date": "2026-11-21",
    }
    path = folder / record_file(name, profile)
    path.write_text(json.dumps(content))
    return path
