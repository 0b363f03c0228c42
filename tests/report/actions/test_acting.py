"""Actions fire once, in time, for what they name; what they start is ended in time and says nothing secret."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from jobreport.actions import acting, running
from jobreport.actions.acting import Acting, failures
from jobreport.actions.configured import Action
from jobrules.model import SECOND_US, Finding, Note, Severity

HOUR_S = 3600.0
SECRET = "T0-hush"
UNUSED = "unused-gpu"


def finding(key: str = UNUSED, rules: tuple[str, ...] = ("UnusedGPU",), **more: Any) -> Finding:
    known = {"severity": Severity.WARNING, "title": "2 of 8 GPUs were never used", "advice": ("Use them.",)}
    return Finding(key=key, rules=rules, section="rules", evidence=(Note("All day"),), **known | more)


def seen(*findings: Finding, measured_s: float = HOUR_S, job: str = "my-job", start_s: float = 1.7e9) -> Any:
    """What a watch looks at of a report."""
    span = {"start_us": round(start_s * SECOND_US), "end_us": round((start_s + measured_s) * SECOND_US)}
    return SimpleNamespace(job=SimpleNamespace(name=job, **span), verdict=SimpleNamespace(findings=findings))


def action(do: str = "command", **more: Any) -> Action:
    known = {"rules": frozenset({"UnusedGPU"}), "argv": (sys.executable, "-c", "")}
    return Action(do=do, **known | more)


class Watch:
    """A watch with these actions, whose report is in a folder."""

    def __init__(self, folder: Path, *actions: Action, **options: Any) -> None:
        self.folder, self.said = folder, list[str]()
        (folder / "report.json").write_text("{}")
        self.acting = Acting(actions, folder, self.said.append, **options)

    def rounds(self, *of: tuple[Finding, ...], **more: Any) -> int:
        """Rounds with these findings; how often something fired."""
        before = self.fired
        for findings in of:
            self.acting.judge(seen(*findings, **more))
        self.acting.finish()
        return self.fired - before

    @property
    def fired(self) -> int:
        log = self.folder / "actions.log"
        return log.read_text().count(" UTC ") if log.exists() else 0


HERE, AWAY = (finding(),), ()


@pytest.mark.parametrize(
    ("rounds", "fired"),
    [
        ([HERE], 0),
        ([HERE, AWAY, HERE], 0),
        ([HERE, HERE], 1),
        ([HERE] * 9, 1),
        ([HERE, HERE, AWAY, AWAY, HERE, HERE, HERE], 1),
        ([HERE, HERE, AWAY, AWAY, AWAY, HERE], 1),
        ([HERE, HERE, AWAY, AWAY, AWAY, HERE, HERE], 2),
        ([(*HERE, finding("other"))] * 3, 2),
        ([(finding("other", rules=("IdleGaps",)),)] * 3, 0),
    ],
)
def test_an_action_fires_once_for_what_holds_two_rounds_and_again_after_three_without(
    rounds: list[tuple[Finding, ...]], fired: int, tmp_path: Path
) -> None:
    assert Watch(tmp_path, action()).rounds(*rounds) == fired


def test_a_watch_that_starts_again_fires_nothing_twice_but_for_another_run(tmp_path: Path) -> None:
    assert Watch(tmp_path, action()).rounds(HERE, HERE) == 1
    again = Watch(tmp_path, action())

    assert again.rounds(HERE, HERE) == 0
    later = seen(*HERE, start_s=1.8e9)
    for _ in range(2):
        again.acting.judge(later)
    assert again.rounds() == 1


def test_two_actions_of_one_kind_both_fire(tmp_path: Path) -> None:
    assert Watch(tmp_path, action(), action(argv=(sys.executable, "-c", "1"))).rounds(HERE, HERE) == 2


@pytest.mark.parametrize(
    ("severity", "fired"), [(Severity.CRITICAL, 1), (Severity.WARNING, 2), (Severity.INFO, 3)]
)
def test_a_severity_means_this_one_and_worse(severity: Severity, fired: int, tmp_path: Path) -> None:
    of_each = tuple(finding(f"a-{one}", severity=one) for one in Severity)

    assert Watch(tmp_path, action(severity=severity)).rounds(of_each, of_each) == fired


@pytest.mark.parametrize(("measured_s", "fired"), [(599, 0), (600, 1)])
def test_nothing_fires_before_its_time(measured_s: float, fired: int, tmp_path: Path) -> None:
    assert Watch(tmp_path, action()).rounds(*[HERE] * 5, measured_s=measured_s) == fired


def test_a_finding_must_hold_for_the_given_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("jobreport.actions.acting.time.time", lambda: now[0])
    watch, fired = Watch(tmp_path, action(for_s=600.0)), []

    for now[0] in (0, 300, 599, 600, 900):
        fired.append(watch.rounds(HERE))

    assert fired == [0, 0, 0, 1, 0]


def test_the_last_report_is_acted_on_at_once_a_bad_end_at_any_time(tmp_path: Path) -> None:
    end = finding("ended", rules=(), severity=Severity.CRITICAL)
    watch = Watch(tmp_path, action(severity=Severity.WARNING), action("stop"))

    watch.acting.judge(seen(*HERE, end, measured_s=60), is_last=True)
    early = watch.rounds()
    watch.acting.judge(seen(*HERE, end), is_last=True)

    assert (early, watch.rounds(), watch.fired) == (1, 1, 2)
    assert watch.acting.stop() is None


def test_a_dry_run_says_what_would_fire_and_leaves_nothing(tmp_path: Path) -> None:
    watch = Watch(tmp_path, action("stop"), action(), is_dry=True)

    watch.rounds(HERE, HERE, HERE)

    assert watch.said == [f"would fire: {do} on UnusedGPU ({UNUSED})" for do in ("stop", "command")]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert watch.acting.stop() is None


def test_the_job_is_stopped_after_all_else_was_done(tmp_path: Path) -> None:
    slow = action(argv=(sys.executable, "-c", "import time; time.sleep(0.1)"))
    watch = Watch(tmp_path, action("stop", grace_s=7.0), slow)

    for _ in range(2):
        watch.acting.judge(seen(*HERE))
    early = watch.acting.stop()
    watch.acting.finish()

    assert (early, watch.acting.stop(), watch.acting.stop()) == (None, ("UnusedGPU", 7.0), None)


SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), json.load(sys.stdin)]))"


def test_a_command_gets_each_value_as_one_argument_and_texts_on_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7 8")
    key = "x; rm -rf ."
    argv = ("{finding.key}", "id={env:SLURM_JOB_ID}", "{job}", "{report}", "{other} {0}", "$HOME `id`")
    watch = Watch(tmp_path, action(argv=(sys.executable, "-c", SHOW, *argv)))
    findings = (finding(key, title="`id`"),)

    for _ in range(2):
        watch.acting.judge(seen(*findings, job="-rf *"))
    watch.acting.finish()

    head, line = (tmp_path / "actions.log").read_text().splitlines()
    arguments, folder, given = json.loads(line)
    report = str(tmp_path / "report.json")
    assert arguments == [key, "id=7 8", "-rf *", report, "{other} {0}", "$HOME `id`"]
    assert folder == str(tmp_path)
    assert (given["state"], given["finding"]["title"], given["job"]) == ("open", "`id`", "-rf *")
    assert head.endswith(f"UTC command on UnusedGPU ({key}): done")


def test_a_command_that_takes_too_long_is_ended_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_KILL_S", 0.2)
    script = "trap '' TERM; (trap '' TERM; echo $$; echo $BASHPID > pid; sleep 60) & wait; sleep 60"
    watch = Watch(tmp_path, action(argv=("bash", "-c", script), timeout_s=0.3))
    began_s = time.monotonic()

    watch.rounds(HERE, HERE)

    assert 0.5 <= time.monotonic() - began_s < 20
    assert watch.said == [f"command on UnusedGPU ({UNUSED}) failed: not done within 0.3 s."]
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("/no/such/program",), "No such file or directory"),
        (("sh", "-c", "exit 3"), "exit status 3"),
        (("sh", "-c", "kill -9 $$"), "killed by signal 9"),
        (("sh", "-c", "\0"), "embedded null byte"),
    ],
)
def test_what_fails_is_said_and_shown_in_the_report(
    argv: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    watch = Watch(tmp_path, action(argv=argv))

    watch.rounds(HERE, HERE)

    assert watch.said == [f"command on UnusedGPU ({UNUSED}) failed: {reason}."]
    (remark,) = failures(tmp_path)
    assert remark.reason == f"did not succeed: command on UnusedGPU: {reason}"


def test_of_much_output_the_beginning_is_kept(tmp_path: Path) -> None:
    watch = Watch(tmp_path, action(argv=(sys.executable, "-c", "print('x' * (1 << 20))")))

    assert watch.rounds(HERE, HERE) == 1
    assert running.MAX_OUTPUT < (tmp_path / "actions.log").stat().st_size < running.MAX_OUTPUT + 200


def test_a_planted_log_is_not_followed_and_a_damaged_state_is_none(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("actions.log", "actions.json.part"):
        (out / name).symlink_to(victim)
    (out / "actions.json").write_text('{"held": 7')
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "actions.json")

    assert failures(pipe) == ()
    Watch(out, action(argv=("echo", "x"))).rounds(HERE, HERE)

    assert victim.read_text() == "mine"
    assert json.loads((out / "actions.json").read_bytes())["schema"] == 1


class Service(BaseHTTPRequestHandler):
    """Answers by path; keeps what was posted."""

    posted: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        what = self.path.split("/")[1]
        self.posted.append((what, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        if what == "hang":
            time.sleep(3)
        if what == "drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            for number in range(50):
                time.sleep(0.1)
                self.wfile.write(f"x-{number}: 1\r\n".encode())
        self.send_response({"redirect": 302, "broken": 500, "gone": 404}.get(what, 200))
        if what == "redirect":
            self.send_header("Location", f"/ok/{SECRET}")
        self.end_headers()
        self.wfile.write(SECRET.encode() * 9)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    """An HTTPS server on this machine, and the file of its certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*request, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    handler = type("Handler", (Service,), {"posted": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # those that hang up
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=partial(server.serve_forever, 0.05), daemon=True)
    thread.start()
    yield server.server_address[1], certificate, handler.posted  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_webhook_posts_tries_again_follows_nothing_and_keeps_the_url_to_itself(
    service: tuple[int, Path, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, certificate, posted = service
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(acting, "_PAUSES_S", (0, 0.1, 0.1))
    expected = {
        "hang": (3, "no answer within 0.5 s"),
        "drip": (3, "no answer within 0.5 s"),
        "ok": (1, None),
        "redirect": (1, "HTTP status 302: redirects are not followed"),
        "gone": (1, "HTTP status 404"),
        "broken": (3, "HTTP status 500"),
    }
    out = tmp_path / "o"
    out.mkdir()
    urls = [f"https://127.0.0.1:{port}/{what}/{SECRET}" for what in expected]
    times = {"hang": 0.5, "drip": 0.5}
    watch = Watch(
        out,
        *(
            action("webhook", url=url, timeout_s=times.get(what, 10.0))
            for what, url in zip(expected, urls, strict=True)
        ),
    )

    watch.rounds(HERE, HERE)

    assert Counter(what for what, _ in posted) == {what: times for what, (times, _) in expected.items()}
    reasons = sorted(reason for _, reason in expected.values() if reason)
    assert sorted(line.partition("failed: ")[2].removesuffix(".") for line in watch.said) == reasons
    (body,) = (body for what, body in posted if what == "ok")
    assert body == {
        "schema": 1,
        "job": "my-job",
        "finding": {
            "key": UNUSED,
            "severity": "warning",
            "title": "2 of 8 GPUs were never used",
            "evidence": "All day.",
            "advice": ["Use them."],
            "rules": ["UnusedGPU"],
            "share": None,
            "start_us": None,
        },
        "report": str(out / "report.json"),
        "state": "open",
    }
    left = "".join([*watch.said, *(path.read_text() for path in out.iterdir())])
    assert SECRET not in left


def test_a_webhook_checks_the_certificate(
    service: tuple[int, Path, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "_PAUSES_S", (0,))
    watch = Watch(tmp_path, action("webhook", url=f"https://127.0.0.1:{service[0]}/ok"))

    watch.rounds(HERE, HERE)

    assert "certificate" in watch.said[0]
    assert service[2] == []


def given_to(do: Action, folder: Path, *findings: Finding, job: str = "my-job", **options: Any) -> list[Any]:
    """What its programs get, in two rounds with the findings and three without."""
    watch = Watch(folder, do, **options)
    with pytest.MonkeyPatch.context() as patch:
        given = list[bytes]()

        def started(_argv: object, body: bytes, *_: object) -> _Done:
            given.append(body)
            return _Done()

        patch.setattr(acting, "Program", started)
        for of in (findings, findings, (), (), ()):
            watch.acting.judge(seen(*of, job=job))
            watch.acting.finish()
    return [json.loads(json.loads(one)["body"]) for one in given]


class _Done:
    output = b""

    def step(self) -> str:
        return ""


def test_a_webhook_tells_when_a_finding_is_gone(tmp_path: Path) -> None:
    bodies = given_to(action("webhook", url="https://a"), tmp_path, *HERE)

    assert [(one["state"], one["finding"]["key"]) for one in bodies] == [("open", UNUSED), ("closed", UNUSED)]


def test_a_message_for_slack_has_no_links_or_calls(tmp_path: Path) -> None:
    hostile = finding(title="<!channel> & <http://x|y>")
    first, last = given_to(action("webhook", url="https://a", is_slack=True), tmp_path, hostile)

    assert first == {
        "text": "my-job: warning: &lt;!channel&gt; &amp; &lt;http://x|y&gt;. Use them. "
        + str(tmp_path / "report.json")
    }
    assert "over: &lt;!channel" in last["text"]


def test_with_redact_no_path_is_sent(tmp_path: Path) -> None:
    first, _ = given_to(action("webhook", url="https://a"), tmp_path, *HERE, is_redacted=True)

    assert first["report"] == "report.json"


def test_a_body_stays_small_whatever_the_names_are(tmp_path: Path) -> None:
    long = "\x01\U0001f525" * 100_000
    huge = finding(title=long, advice=(long,) * 50, rules=("UnusedGPU", *map(str, range(999))))
    first, _ = given_to(action("webhook", url="https://a"), tmp_path, huge, job="\x01" * 255)

    assert len(json.dumps(first, ensure_ascii=False).encode()) <= 64_000
