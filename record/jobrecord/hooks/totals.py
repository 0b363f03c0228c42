"""Facts that the hooks of a node's training processes leave: ``jobrecord/hooks/<node>/<worker>.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrecord import facts
from jobrecord.folder import Folder

if TYPE_CHECKING:
    from pathlib import Path

#: Exceptions that are kept, the first ones.
_MAX_EXCEPTIONS = 64
#: What is added up.
_FIELDS = {
    "worker",
    "hook_s",
    "steps",
    "clock_steps",
    "dropped",
    "other_threads",
    "other_lane_events",
    "written",
}


def add(node_facts: dict[str, Any], out: Path) -> None:
    """Add those of all training processes of a node to the facts of the node."""
    try:
        with Folder(out, facts.hooks_folder(node_facts["node"])) as folder:
            read = [facts.read(folder, name) for name in sorted(folder.names()) if name.endswith(".json")]
    except OSError:
        return
    raised = [one for each in read if isinstance(one := each.get("exception"), dict)]
    raised = [one for one in raised if isinstance(one.get("at_us"), int)]
    node_facts["exceptions"] = sorted(raised, key=lambda one: one["at_us"])[:_MAX_EXCEPTIONS]
    libraries = [each.get("libraries") for each in read]
    node_facts["libraries"] = sorted(
        {str(name) for some in libraries if isinstance(some, list) for name in some}
    )
    # A file may be damaged, or of another version of jobrecord in the training image.
    found = [one for one in read if one.keys() >= _FIELDS]
    if not found:
        return
    node_facts["overhead"] |= {"hook_s": round(sum(one["hook_s"] for one in found), 6)}
    node_facts["overhead"] |= {"steps": sum(one["steps"] for one in found), "processes": len(found)}
    node_facts["clock_steps"] = max(node_facts["clock_steps"], *(one["clock_steps"] for one in found))
    dropped = node_facts["dropped"]
    dropped["events"] = sum(one["dropped"]["events"] for one in found)
    failed = next((one["dropped"] for one in found if one["dropped"]["reason"]), None)
    if failed and not dropped["reason"]:
        dropped |= {"reason": failed["reason"], "since_us": failed["since_us"]}
    parts = [one.get("parts") or {} for one in found]
    for name in ("config", "versions"):
        # Of values that differ, that of the first process.
        known = [values for one in found if isinstance(values := one.get(name), dict)]
        node_facts[name] = {key: str(value) for values in known[::-1] for key, value in values.items()}
    sizes = (size for one in found if isinstance(size := one.get("world_size"), int) and size > 0)
    node_facts["world_size"] = next(sizes, None)
    given = [
        one["flops"] for one in found if isinstance(one.get("flops"), dict) and "per_step" in one["flops"]
    ]
    node_facts["flops"] = {
        "per_step": [one["per_step"] for one in given],
        "source": "+".join(sorted({str(one.get("source")) for one in given})),
    }
    node_facts["parameters"] = max((one.get("parameters") or 0 for one in found), default=0) or None
    node_facts["precision"] = "+".join(
        sorted({str(one["precision"]) for one in found if one.get("precision")})
    )
    node_facts["hooks"] = {
        "other_threads": sum(one["other_threads"] for one in found),
        "other_lane_events": sum(one["other_lane_events"] for one in found),
        "framework": next(filter(None, (one.get("framework") for one in found)), ""),
        # Off in one process is off.
        "parts": {
            name: next(filter(None, (known.get(name) for known in parts)), "")
            for name in sorted({name for known in parts for name in known})
        },
        "written": [{"worker": one["worker"], **change} for one in found for change in one["written"]],
    }
