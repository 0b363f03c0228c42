"""Damage to a job directory: a number says what is broken, and the same number breaks the same again.

A job is a mapping of paths, relative to its directory and with ``/``, to the bytes of the files. Functions here
change nothing that they are given. Compressed files are damaged as they are, or unpacked, damaged and packed again.
"""

from __future__ import annotations

import gzip
import re
import zlib
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Job = dict[str, bytes]

#: Damage of one mutated job at most.
MOST = 6

#: A key with its value, where that is a string, a number or a word.
_PAIR = re.compile(rb'"(\w+)"\s*:\s*("(?:[^"\\\n]|\\.)*"|[-+.\w]+)')
_DIGIT = re.compile(rb"[0-9]")

_VALUES = [
    *b"NaN Infinity -Infinity null true [] {} [1.5] 0 -0.0 -1 -19.61 100.0001 1e15 1e308 1e309 -1e308 5e-324".split(),
    *b"9007199254740993 9223372036854775808 -9223372036854775809 18446744073709551616 0x10 01 1. .5 1_000".split(),
    *rb'"" "12.5" "nan" "x" "\ud800" "\u0000" "a\nb" "<script>alert(1)</script>" {"a":1}'.split(),
    b"9" * 400,
    '"\u202egpu0"'.encode(),
    b'"\x1b[31m"',
    b'"' + b"x" * 5000 + b'"',
]
_KEYS = [*b"Value Timestamp Type Name NodeId ts dur ph pid args value".split(), b"", b"\xff"]
_PIECES = [
    *(bytes([byte]) for byte in b'\0\t\n\r "+,-.0159:E[\\]e{}\x0b\x0c\x7f\x80\xff'),
    *(b"\r\n", b"\n\n\n", b"\xef\xbb\xbf", b"\xc3\xbc", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\x1f\x8b"),
    *(b"//", b"NaN", b"\\u0041", b"{}", b"[" * 2000, b'{"a":' * 2000, b"\0" * 600, b" " * 600),
]
_NAMES = [
    "{}.tmp",
    "{}~",
    "{}.gz",
    "{}.json",
    "system/incremental/1700000100.algo-1.json",
    "system/incremental/1700000100.algo-7.json",
    "framework/pevents/1700000100000000_7-algo-1_pythontimeline.json",
    "a b/{}",
    "x.json",
    "\u202etxt.json",
    "two\nlines.json",
]


def mutated(job: Mapping[str, bytes], seed: int) -> Job:
    """The job with one to six kinds of damage."""
    found = dict(job)
    for step in steps(seed):
        found = applied(found, step)
    return found


def steps(seed: int) -> list[int]:
    """The numbers of the single kinds of damage that ``mutated`` does, one after the other."""
    random = Random(seed)
    return [random.randrange(1 << 40) for _ in range(random.randint(1, MOST))]


def applied(job: Mapping[str, bytes], step: int) -> Job:
    """The job with one kind of damage."""
    random = Random(step)
    found = dict(job)
    if not found:
        return found
    if random.random() < 0.25:
        random.choice(_OF_FILES)(random, found)
    else:
        name = random.choice(sorted(found))
        found[name] = _in_text(random, found[name], random.choice(_OF_BYTES + _OF_LINES))
    return found


# Damage to the files of a job, a copy of which is changed


def _cut_file(random: Random, job: Job) -> None:
    name = random.choice(sorted(job))
    job[name] = job[name][: random.randint(0, len(job[name]))]


def _double_file(random: Random, job: Job) -> None:
    name = random.choice(sorted(job))
    job[_other_name(random, name)] = job[name]


def _empty_file(random: Random, job: Job) -> None:
    job[random.choice(sorted(job))] = b""


def _rename_file(random: Random, job: Job) -> None:
    name = random.choice(sorted(job))
    job[_other_name(random, name)] = job.pop(name)


def _lose_file(random: Random, job: Job) -> None:
    del job[random.choice(sorted(job))]


def _swap_files(random: Random, job: Job) -> None:
    one, other = random.choice(sorted(job)), random.choice(sorted(job))
    job[one], job[other] = job[other], job[one]


def _mix_files(random: Random, job: Job) -> None:
    """Some lines of one file stand among those of another."""
    one, other = random.choice(sorted(job)), random.choice(sorted(job))
    lines = _plain(job[one]).splitlines(keepends=True)
    start = random.randint(0, len(lines))
    lines = lines[start : start + random.choice([1, 3, 30])]

    def among(random: Random, text: bytes) -> bytes:
        target = text.splitlines(keepends=True)
        at = random.randint(0, len(target))
        return b"".join([*target[:at], *lines, *target[at:]])

    job[other] = _in_text(random, job[other], among)


def _zip_file(random: Random, job: Job) -> None:
    """Compressed, and perhaps cut short or followed by something."""
    name = random.choice(sorted(job))
    packed = gzip.compress(job[name], mtime=0)
    if random.random() < 0.5:
        packed = packed[: random.randint(0, len(packed))]
    job[name] = packed + random.choice([b"", b"", b"\0" * 512, b"rest", packed])


_OF_FILES: list[Callable[[Random, Job], None]] = [
    _cut_file,
    _double_file,
    _empty_file,
    _rename_file,
    _lose_file,
    _swap_files,
    _mix_files,
    _mix_files,
    _zip_file,
]


def _other_name(random: Random, name: str) -> str:
    folder, _, own = name.rpartition("/")
    if random.random() < 0.4:  # of another minute, machine or process
        digits = list(re.finditer(r"[0-9]", own))
        if digits:
            at = random.choice(digits).start()
            own = f"{own[:at]}{random.randint(0, 9)}{own[at + 1 :]}"
            return f"{folder}/{own}".removeprefix("/")
    other = random.choice(_NAMES).format(own)
    return other if random.random() < 0.5 else f"{folder}/{other}".removeprefix("/")


# Damage to the bytes of a file


def _flip(random: Random, text: bytes) -> bytes:
    flipped = bytearray(text)
    for _ in range(random.choice([1, 1, 2, 20])):
        flipped[random.randrange(len(text))] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _flip_digits(random: Random, text: bytes) -> bytes:
    """Another digit, which leaves all else sound: a value, a time or a name is wrong."""
    flipped, digits = bytearray(text), list(_DIGIT.finditer(text))
    for found in random.choices(digits, k=random.choice([1, 1, 2, 20])) if digits else ():
        flipped[found.start()] = ord(random.choice("0123456789"))
    return bytes(flipped)


def _insert(random: Random, text: bytes) -> bytes:
    for _ in range(random.choice([1, 1, 3])):
        at = random.randint(0, len(text))
        gone = random.choice([0, 0, 1, 2, 50])
        text = text[:at] + random.choice(_PIECES) + text[at + gone :]
    return text


def _cut_middle(random: Random, text: bytes) -> bytes:
    at = random.randint(0, len(text))
    return text[:at] + text[at + random.choice([1, 10, 100, 1000, 5000]) :]


def _begin_with(random: Random, text: bytes) -> bytes:
    return (
        random.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\n", b" ", b"[", b"\xef\xbb\xbf\xef\xbb\xbf"])
        + text
    )


def _end_with(random: Random, text: bytes) -> bytes:
    return text.rstrip(b"\n") + random.choice(
        [b"", b"\0" * 4096, b"\n]", b"\n,", b"\xff", b"\x1a", b"\n{", b" "]
    )


def _line_ends(random: Random, text: bytes) -> bytes:
    return text.replace(b"\n", random.choice([b"\r\n", b"\r", b"\n\n", b"\n \n", b" ", b""]))


def _other_text(random: Random, text: bytes) -> bytes:
    return text.decode("latin-1").encode(random.choice(["utf-16", "utf-16-le", "utf-32", "utf-8-sig"]))


_OF_BYTES: list[Callable[[Random, bytes], bytes]] = [
    _flip,
    _flip,
    _flip_digits,
    _flip_digits,
    _insert,
    _insert,
    _cut_middle,
    _begin_with,
    _end_with,
    _line_ends,
    _other_text,
]


# Damage to the lines of a file


def _lines(change: Callable[[Random, list[bytes]], None]) -> Callable[[Random, bytes], bytes]:
    def damage(random: Random, text: bytes) -> bytes:
        lines = text.splitlines(keepends=True)
        change(random, lines)
        return b"".join(lines)

    return damage


def _some(random: Random, lines: list[bytes]) -> tuple[int, int]:
    start = random.randrange(len(lines))
    return start, min(len(lines), start + random.choice([1, 1, 2, 10, 100]))


def _drop_lines(random: Random, lines: list[bytes]) -> None:
    start, end = _some(random, lines)
    del lines[start:end]


def _double_lines(random: Random, lines: list[bytes]) -> None:
    start, end = _some(random, lines)
    at = random.randint(0, len(lines))
    lines[at:at] = lines[start:end]


def _swap_lines(random: Random, lines: list[bytes]) -> None:
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _shuffle(random: Random, lines: list[bytes]) -> None:
    random.shuffle(lines)


def _cut_lines(random: Random, lines: list[bytes]) -> None:
    """Each keeps its end: what is lost is what a writer did not finish."""
    for _ in range(random.choice([1, 1, 5])):
        at = random.randrange(len(lines))
        lines[at] = lines[at][: random.randint(0, len(lines[at]))] + b"\n"


def _join_lines(random: Random, lines: list[bytes]) -> None:
    at = random.randrange(len(lines))
    lines[at] = lines[at].rstrip(b"\n")


def _nest(random: Random, lines: list[bytes]) -> None:
    at = random.randrange(len(lines))
    line = lines[at].rstrip(b"\n")
    depth = random.choice([1, 1, 100, 3000])
    before, behind = random.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'{"args":', b"}")])
    lines[at] = before * depth + line + behind * depth + b"\n"


def _change_values(random: Random, lines: list[bytes]) -> None:
    """Other values in one line, or the same key of many lines."""
    at = random.randrange(len(lines))
    pairs = list(_PAIR.finditer(lines[at]))
    if not pairs:
        return
    pair, value = random.choice(pairs), random.choice(_VALUES)
    lines[at] = lines[at][: pair.start(2)] + value + lines[at][pair.end(2) :]
    if random.random() < 0.2:
        same = re.compile(b'("' + re.escape(pair[1]) + rb'"\s*:\s*)("(?:[^"\\\n]|\\.)*"|[-+.\w]+)')
        for other in range(*_some(random, lines)):
            lines[other] = same.sub(lambda found: found[1] + value, lines[other], count=1)


def _change_keys(random: Random, lines: list[bytes]) -> None:
    """Keys under another name, or twice, or gone with their values."""
    at = random.randrange(len(lines))
    pairs = list(_PAIR.finditer(lines[at]))
    if not pairs:
        return
    pair, line = random.choice(pairs), lines[at]
    key = random.choice(_KEYS)
    lines[at] = random.choice(
        [
            line[: pair.start(1)] + key + line[pair.end(1) :],
            line[: pair.start()] + line[pair.end() :].removeprefix(b","),
            line[: pair.end()] + b',"' + key + b'":' + random.choice(_VALUES) + line[pair.end() :],
        ]
    )


_OF_LINES: list[Callable[[Random, bytes], bytes]] = [
    *map(_lines, (_drop_lines, _double_lines, _swap_lines, _shuffle, _cut_lines, _join_lines, _nest)),
    *map(_lines, (_change_values, _change_values, _change_values, _change_keys, _change_keys)),
]


def _in_text(random: Random, content: bytes, damage: Callable[[Random, bytes], bytes]) -> bytes:
    """The file with its text damaged; a compressed one in half of the cases as it is."""
    text = _plain(content)
    if text is content or random.random() < 0.3:
        return damage(random, content) if content.strip() else content
    return gzip.compress(damage(random, text), mtime=0) if text.strip() else content


def _plain(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        return content
