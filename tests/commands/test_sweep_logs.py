"""``fabbench sweep --from``: logs of pairs that exist already."""

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.model.hostlist import expand_hostlist
from fabbench.runs.document import write
from tests.support.command_line import runner
from tests.support.nccl_text import nccl_text
from tests.support.pages import Page
from tests.support.simulated_sweeps import named

EIGHT = named(8)


def sweep(*arguments: str) -> Result:
    return runner().invoke(cli, ["sweep", *arguments])


def pair_logs(folder: Path, slow: Mapping[str, float], *, own_names: bool = True) -> Path:
    """Logs of all pairs of eight nodes; a node in `slow` reaches that part."""
    folder.mkdir(exist_ok=True)
    for number, (a, b) in enumerate(combinations(EIGHT, 2)):
        part = min(slow.get(a, 1.0), slow.get(b, 1.0)) * (1 + 0.004 * (number % 5))
        text = nccl_text([(1 << 20, 40 * part), (1 << 30, 77 * part)])
        names = (a, b) if own_names else ("localhost", "localhost")
        text = text.replace("node0", names[0]).replace("node1", names[1])
        (folder / f"nccl_{a}_{b}.log").write_text(text)
    return folder


@pytest.mark.parametrize("own_names", [True, False])
def test_a_bad_node_is_found_in_a_directory(tmp_path: Path, own_names: bool) -> None:
    folder = pair_logs(tmp_path / "logs", {"node-5": 0.4}, own_names=own_names)
    (folder / "README.txt").write_text("Logs of last night.\n")
    done = sweep("--from", str(folder), "--format", "json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    (suspect,) = document["suspects"]
    assert (suspect["kind"], suspect["name"]) == ("node", "node-5")
    assert suspect["evidence"] == "node-5 is slow in 7 of 7 pairs (31 GB/s; others 77–78)."
    assert [Path(each["source"]).name for each in document["left_out"]] == ["README.txt"]
    assert "README.txt: No recognized output" in done.stderr


def test_logs_of_pairs_have_a_page(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {"node-5": 0.4})
    target = tmp_path / "sweep.html"
    done = sweep("--from", str(folder), "-o", str(target))
    assert (done.exit_code, done.stdout) == (1, "")
    found = Page(target.read_text("utf-8"))
    assert "1 bad node: node-5" in found.text
    assert {"run-1-suspects", "run-1-pairs"} <= {*found.ids}
    assert "node-5 is slow in 7 of 7 pairs" in found.text


@pytest.mark.parametrize("own_names", [True, False])
def test_a_log_that_shows_a_failure_is_evidence(tmp_path: Path, own_names: bool) -> None:
    """Also where no log with a result knows the node."""
    folder = pair_logs(tmp_path / "logs", {}, own_names=own_names)
    for path in folder.glob("*node-2*"):
        path.write_text("ssh: connect to host node-2 port 22: Connection refused\n")
    done = sweep("--from", str(folder), "--format", "json")
    assert [each["name"] for each in json.loads(done.stdout)["suspects"]] == ["node-2"]
    assert done.exit_code == 1


@pytest.mark.parametrize("letters", [False, True])
def test_logs_that_show_nothing_leave_their_node_and_link_undecided(
    tmp_path: Path, letters: bool
) -> None:
    """Names with letters are known by how files of other pairs are named."""
    folder = pair_logs(tmp_path / "logs", {})
    (folder / "nccl_node-0_node-1.log").write_text("nothing\n")
    for path in folder.glob("*node-2*"):
        path.write_text("")
    for path in folder.iterdir() if letters else ():
        text = path.read_text()
        path.unlink()
        named_after = re.sub(
            r"node-(\d)", lambda found: f"node-{'abcdefgh'[int(found[1])]}", path.name
        )
        (folder / named_after).write_text(
            re.sub(r"node-(\d)", lambda found: f"node-{'abcdefgh'[int(found[1])]}", text)
        )
    done = sweep("--from", str(folder), "--format", "json")
    document = json.loads(done.stdout)
    expected = ["node-c", "node-a – node-b"] if letters else ["node-2", "node-0 – node-1"]
    assert [each["name"] for each in document["undecided"]] == expected
    assert (document["suspects"], document["links"], done.exit_code) == (
        [],
        {"tested": 20, "all": 28},
        4,
    )


def test_islands_are_groups_and_nobody_is_accused(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {})
    island = dict(zip(EIGHT, "aaaaabbb", strict=True))
    for a, b in combinations(EIGHT, 2):
        if island[a] != island[b]:
            text = nccl_text([(1 << 20, 10), (1 << 30, 19)]).replace("node0", a).replace("node1", b)
            (folder / f"nccl_{a}_{b}.log").write_text(text)
    document = json.loads(sweep("--from", str(folder), "--format", "json").stdout)
    assert [each["kind"] for each in document["suspects"]] == ["group"]
    assert [each["nodes"] for each in document["groups"]] == [EIGHT[:5], EIGHT[5:]]
    assert sweep("--from", str(folder), "--print-cordon", "kubectl").stdout.startswith("# path ")


def test_a_log_whose_rows_were_altered_says_nothing_of_its_nodes(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {})
    for other in ("node-1", "node-2", "node-3"):
        path = folder / f"nccl_node-0_{other}.log"
        path.write_text(re.sub(r"(# Avg bus bandwidth +: ).*", r"\g<1>50", path.read_text()))
    document = json.loads(sweep("--from", str(folder), "--format", "json").stdout)
    assert [(each["kind"], each["nodes"][0]) for each in document["undecided"]] == [
        ("link", "node-0")
    ] * 3
    assert (document["suspects"], document["tests"]) == ([], 25)
    assert ["altered" in each["reason"] for each in document["left_out"]] == [True] * 3


def test_a_node_whose_logs_say_nothing_is_undecided(tmp_path: Path) -> None:
    """Not a word is known of it, and so not that it is good."""
    folder = pair_logs(tmp_path / "logs", {})
    for path in folder.glob("*node-0*"):
        path.write_text(re.sub(r"(# Avg bus bandwidth +: ).*", r"\g<1>50", path.read_text()))
    done = sweep("--from", str(folder), "--format", "json")
    document = json.loads(done.stdout)
    assert [each["name"] for each in document["undecided"]] == ["node-0"]
    assert (document["suspects"], len(document["left_out"]), done.exit_code) == ([], 7, 4)


def test_commands_to_cordon_are_all_that_is_printed(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {"node-5": 0.4, "node-6": 0.5})
    done = sweep("--from", str(folder), "--print-cordon", "kubectl")
    assert sorted(done.stdout.splitlines()) == [
        "kubectl cordon -- node-5",
        "kubectl cordon -- node-6",
    ]
    assert done.exit_code == 1


@pytest.mark.parametrize("form", [("--json",), ("--format", "csv")])
def test_commands_to_cordon_have_no_other_format(tmp_path: Path, form: Sequence[str]) -> None:
    folder = pair_logs(tmp_path / "logs", {"node-5": 0.4})
    done = sweep("--from", str(folder), "--print-cordon", "kubectl", *form)
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_file_that_is_read_is_not_written(tmp_path: Path) -> None:
    text = nccl_text([(1 << 20, 10), (1 << 30, 19)])
    log = tmp_path / "a.txt"
    log.write_text(text)
    link = tmp_path / "link.txt"
    link.symlink_to(log)
    for words in (
        ("parse", log, "-o", log),
        ("explain", log, "-o", link),
        ("compare", log, "-o", log),
        ("compare", f"{tmp_path / 'b.txt'},{log}", log, "-o", log),
        ("report", log, "-o", log, "--format", "html"),
        ("history", "busbw", log, "-o", log),
        ("sweep", "--from", log, "-o", log),
    ):
        (tmp_path / "b.txt").write_text(text)
        done = runner().invoke(cli, [*map(str, words)])
        assert (done.exit_code, log.read_text()) == (2, text), words
    other = tmp_path / "other.txt"
    other.write_text("of yesterday\n")  # What is no input is replaced
    assert runner().invoke(cli, ["parse", str(log), "-o", str(other)]).exit_code == 0
    assert "all_reduce" in other.read_text()


def test_tolerance_says_how_slow_is_bad(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {"node-5": 0.8})
    assert sweep("--from", str(folder)).exit_code == 1
    assert sweep("--from", str(folder), "--tolerance", "30%").exit_code == 0


@pytest.mark.parametrize("words", ["--confidence 0.99", "--tolerance 0.1"])
def test_a_fraction_is_no_percentage(tmp_path: Path, words: str) -> None:
    """Taken for 0.99 %, it would call healthy nodes bad."""
    folder = str(pair_logs(tmp_path / "logs", {}))
    assert sweep("--from", folder, *words.split()).exit_code == 2
    assert sweep("--from", folder, "--tolerance", "0.9%").exit_code != 2


def test_one_node_is_compared_with_nothing(tmp_path: Path) -> None:
    text = nccl_text([(1 << 20, 10), (1 << 30, 19)]).replace("node1", "node0")
    (tmp_path / "node0_node0.log").write_text(text)
    done = sweep("--from", str(tmp_path))
    assert done.stdout.startswith("No test failed; one node is too few to compare.")


def test_a_group_whose_nodes_are_all_slow_is_a_slow_group(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {"node-0": 0.5, "node-1": 0.5, "node-2": 0.5})
    groups = tmp_path / "groups"
    groups.write_text("node-[0-2] rack-1\nnode-[3-4]  rack-2  # the new one\nnode-[5-7],rack-3")
    more = ("--groups", str(groups), "--confidence", "95%", "--format", "json")
    document = json.loads(sweep("--from", str(folder), *more).stdout)
    (suspect,) = document["undecided"]
    assert document["suspects"] == []
    assert (suspect["kind"], suspect["verdict"]) == ("group", "slow-group")
    assert suspect["nodes"] == ["node-0", "node-1", "node-2"]
    groups.write_text(groups.read_text(), "utf-8-sig")
    assert json.loads(sweep("--from", str(folder), *more).stdout) == document
    groups.write_text("node-[0-2] rack-1\n")
    missing = sweep("--from", str(folder), "--groups", str(groups))
    assert missing.exit_code == 2
    assert "node-3, node-4" in missing.stderr


def test_what_cannot_be_judged_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "all.log").write_text("nothing\n")
    done = sweep("--from", str(folder))
    assert done.exit_code == 3
    assert "Hint: " in done.stderr


def test_a_node_that_was_measured_otherwise_is_compared_with_nothing(tmp_path: Path) -> None:
    """Its logs end at another size; or it is in all logs there are."""
    folder = pair_logs(tmp_path / "logs", {})
    for path in folder.glob("*node-3*"):
        a, b = re.findall(r"node-\d", path.name)
        text = nccl_text([(1 << 20, 12), (1 << 28, 23)]).replace("node0", a).replace("node1", b)
        path.write_text(text)
    done = sweep("--from", str(folder), "--format", "json")
    assert done.exit_code == 4
    assert "node-3" in json.loads(done.stdout)["unfinished"]
    star = pair_logs(tmp_path / "star", {"node-0": 0.5})
    for path in {*star.iterdir()}.difference(star.glob("*node-0*")):
        path.unlink()
    done = sweep("--from", str(star), "--format", "json")
    assert done.exit_code == 4
    assert "node-0" in json.loads(done.stdout)["unfinished"]


def log_of(
    folder: Path, nodes: Sequence[str], rows: Sequence[tuple[int, float]], name: str = "nccl"
) -> None:
    """A log of some nodes, which also name its file."""
    folder.mkdir(exist_ok=True)
    text = nccl_text(rows, ranks=8 * len(nodes), hosts=len(nodes))
    for number, node in enumerate(nodes):
        text = text.replace(f"node{number}", node)
    (folder / f"{name}_{'_'.join(nodes)}.log").write_text(text)


def test_a_pair_whose_only_log_has_another_size_is_said(tmp_path: Path) -> None:
    """Its nodes are compared elsewhere, this pair with nothing: unless another log has its size."""
    folder = pair_logs(tmp_path / "logs", {})
    log_of(folder, ("node-2", "node-5"), [(1 << 20, 12), (1 << 28, 23)])
    done = sweep("--from", str(folder), "--format", "json")
    assert "node-2 – node-5" in json.loads(done.stdout)["unfinished"]
    assert done.exit_code == 4
    again = pair_logs(tmp_path / "again", {})
    log_of(again, ("node-2", "node-5"), [(1 << 20, 12), (1 << 28, 23)], name="small")
    done = sweep("--from", str(again), "--format", "json")
    assert (json.loads(done.stdout)["unfinished"], done.exit_code) == ("", 0)


@pytest.mark.parametrize("second", ["node-[0-1]", "node-[2-3]"])
def test_where_no_two_logs_can_be_compared_nothing_is_found_good(
    tmp_path: Path, second: str
) -> None:
    """Logs of one pair say so in other words; those of two pairs, at two sizes, are no answer."""
    nodes = expand_hostlist(second)
    log_of(tmp_path, ("node-0", "node-1"), [(1 << 30, 77)])
    log_of(tmp_path, nodes, [(1 << 28, 23)], name="small")
    done = sweep("--from", str(tmp_path), "--format", "json")
    alone = "" if nodes[0] == "node-0" else "node-0 – node-1, node-2 – node-3"
    assert alone in json.loads(done.stdout)["unfinished"]
    assert done.exit_code == (4 if alone else 0)


@pytest.mark.parametrize("runs", [1, 3])
def test_runs_of_the_same_three_nodes_are_compared_with_nothing(tmp_path: Path, runs: int) -> None:
    for number in range(runs):
        log_of(tmp_path / f"run{number}", EIGHT[:3], [(1 << 30, 77 - 20 * number)])
    done = sweep("--from", str(tmp_path), "--format", "json")
    assert "node-0 – node-1 – node-2" in json.loads(done.stdout)["unfinished"]
    assert done.exit_code == 4


def test_where_no_log_has_a_figure_the_first_reason_is_said(tmp_path: Path) -> None:
    folder = pair_logs(tmp_path / "logs", {})
    for path in folder.iterdir():
        path.write_text("ssh: connect to host node-2 port 22: Connection refused\n")
    done = sweep("--from", str(folder))
    assert done.exit_code == 3
    assert "Connection refused" in done.stderr


OF_PINGPONG = """\
#@fabbench begin 000-tcp-r1/64 benchmark=pingpong endpoint=msg size=64 iterations=100
[fabbench:server] bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
[fabbench:server] 64      100     =100     12k         3.22s      0.00   16083.15       0.00
[fabbench:client] bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
[fabbench:client] 64      100     =100     12k         3.21s      0.00   16026.51       0.00
#@fabbench end 000-tcp-r1/64 0
"""


def an_old_sweep(store: Path) -> Path:
    """A sweep of an older version, which called every second test failed."""
    nodes = named(6)
    document = {
        "mode": "pairs",
        "benchmark": "pingpong",
        "fabric": "tcp",
        "nodes": nodes,
        "metric": "bandwidth",
        "seed": 0,
        "confidence": 0.99,
        "tolerance": 0.1,
    }
    write(store / "request.json", {"format": 1, "sweep": document})
    (store / "logs").mkdir()
    for number, pair in enumerate(combinations(nodes, 2)):
        measured = {"outcome": "ok", "value": 1e4}
        if number % 2:
            measured = {"outcome": "failed", "reason": "No bandwidth was measured."}
            packed = store / "logs" / f"{number:06}.log.gz"
            packed.write_bytes(gzip.compress(OF_PINGPONG.encode()))
        test = {"number": number, "round": 1, "nodes": pair, **measured}
        write(store / "tests" / f"{number:06}.json", test)
    return store


def test_an_old_sweep_that_called_a_printed_0_failed_accuses_nobody(tmp_path: Path) -> None:
    store = an_old_sweep(tmp_path / "20261128T222749Z-pingpong-9def74")
    done = sweep("--from", str(store), "--format", "json")
    said = json.loads(done.stdout)
    assert (said["suspects"], done.exit_code) == ([], 4)
    assert "too small" in said["contradiction"]


@pytest.mark.parametrize("packed", [False, True])
def test_copies_of_a_log_are_no_further_tests(tmp_path: Path, packed: bool) -> None:
    """Whether its figures are slow, or it only says why it failed."""
    folder = pair_logs(tmp_path / "logs", {})
    slow = folder / "nccl_node-0_node-1.log"
    log_of(folder, ("node-0", "node-1"), [(1 << 20, 12), (1 << 30, 31)])
    failed = folder / "nccl_node-2_node-3.log"
    failed.write_text("mpirun noticed that process rank 1 with PID 7 on node node-3 was killed.\n")
    once = sweep("--from", str(folder), "--format", "json")
    for path in (slow, failed):
        if packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        else:
            path.with_suffix(".bak.log").write_bytes(path.read_bytes())
    again = sweep("--from", str(folder), "--from", str(failed), "--format", "json")
    assert (once.exit_code, again.exit_code) == (4, 4)
    assert json.loads(again.stdout) == json.loads(once.stdout)
    assert "left out: 3." in again.stderr


def osu_logs(folder: Path, *figures: float, program: str = "bw", slow: str = "") -> Path:
    """Logs of all pairs of four nodes, one per figure; a `slow` node reaches half."""
    folder.mkdir(exist_ok=True)
    title, column = OSU_TITLES[program]
    for pair in combinations(named(4), 2):
        for number, figure in enumerate(figures):
            shown = figure / 2 if slow in pair else figure
            path = folder / f"{program}{number}_{'_'.join(pair)}.log"
            path.write_text(f"# OSU MPI {title} Test v7.4\n# Size  {column}\n8  {shown:.2f}\n")
    return folder


OSU_TITLES = {"bw": ("Bandwidth", "Bandwidth (MB/s)"), "latency": ("Latency", "Latency (us)")}


@pytest.mark.parametrize(("figure", "tests"), [(24506.68, 6), (12.34, 12)])
def test_figures_that_two_executions_may_share_are_no_copies(
    tmp_path: Path, figure: float, tests: int
) -> None:
    done = sweep("--from", str(osu_logs(tmp_path, figure, figure)), "--format", "json")
    assert json.loads(done.stdout)["tests"] == tests


def test_a_sweep_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    stored = an_old_sweep(tmp_path / "20261128T222749Z-pingpong-9def74")
    done = sweep("--from", str(stored), "--from", str(stored))
    assert "15 tests of 6 nodes" in done.stdout


def test_logs_of_another_metric_were_not_judged(tmp_path: Path) -> None:
    osu_logs(tmp_path, 24506.68, slow="node-1")
    osu_logs(tmp_path, 2.01, 2.02, program="latency")
    done = sweep("--from", str(tmp_path), "--format", "json")
    assert done.exit_code == 4
    assert "6 logs" in (said := json.loads(done.stdout)["unfinished"])
    assert "--metric bandwidth" in said
    asked = sweep("--from", str(tmp_path), "--metric", "latency", "--format", "json")
    assert (asked.exit_code, json.loads(asked.stdout)["unfinished"]) == (0, "")


@pytest.mark.parametrize("figures", [[24506.68], [24506.68, 24406.12, 24601.13]])
def test_a_spread_is_of_tests_that_measured_it(tmp_path: Path, figures: Sequence[float]) -> None:
    folder = osu_logs(tmp_path, *figures)
    few = [word for path in folder.glob("*0_*1.log") for word in ("--from", str(path))]
    assert json.loads(sweep(*few, "--format", "json").stdout)["spread"] is None
    assert "typical 24.5 GB/s." in sweep(*few).stdout
    every = sweep("--from", str(folder))
    assert "typical 24.5 GB/s ±" in every.stdout
