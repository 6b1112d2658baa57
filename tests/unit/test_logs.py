"""Reading run logs: what is accepted, and how a malformed line is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from langgraph_toolmem.base.errors import InputError, LogError
from langgraph_toolmem.runs.logs import load_runs

MESSAGES = [
    {"role": "user", "content": "Delete the mail from Ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "Ann"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '[{"id": 7}]'},
    {"role": "assistant", "content": "Done."},
]
LINE = json.dumps({"id": "run-1", "task": "tidy up", "success": True, "user_id": "ann", "messages": MESSAGES})


@pytest.fixture
def write(tmp_path):
    def write(*lines: str | bytes, name: str = "runs.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
        return path

    return write


def test_a_full_line(write):
    (run,) = load_runs(write(LINE)).runs

    assert (run.line, run.thread_id, run.success, run.user_id, run.task) == (1, "run-1", True, "ann", "tidy up")
    assert run.messages == MESSAGES


def test_a_bare_list_of_messages_and_blank_lines_and_windows_line_ends(write):
    runs = load_runs(write(b"", b"  \r", json.dumps(MESSAGES).encode() + b"\r", b"", b"\t")).runs

    assert [(run.line, run.messages, run.success, run.user_id) for run in runs] == [(3, MESSAGES, None, None)]


def test_only_a_line_feed_ends_a_line(write):
    text = json.dumps([{"role": "user", "content": "one\u2028two\u0085three"}], ensure_ascii=False)
    (run,) = load_runs(write(text)).runs

    assert run.messages[0]["content"] == "one\u2028two\u0085three"


def test_byte_order_mark_and_gzip(write, tmp_path):
    assert [run.thread_id for run in load_runs(write(b"\xef\xbb\xbf" + LINE.encode())).runs] == ["run-1"]
    packed = tmp_path / "runs.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + LINE.encode() + b"\n\n" + LINE.encode()))
    assert [(run.line, run.thread_id) for run in load_runs(packed).runs] == [(1, "run-1"), (3, "run-1")]


def test_run_id_wins_over_id_and_numbers_become_text(write):
    lines = [
        json.dumps({"id": "a", "thread_id": "b", "messages": MESSAGES}),
        json.dumps({"id": 7, "user_id": 8, "messages": MESSAGES}),
        json.dumps({"id": 0, "messages": MESSAGES}),
    ]
    assert [(run.thread_id, run.user_id) for run in load_runs(write(*lines)).runs] == [
        ("b", None),
        ("7", "8"),
        ("0", None),
    ]


def test_lines_without_an_id_get_one_that_survives_a_copy_of_the_file(write):
    plain = json.dumps(MESSAGES)
    first = load_runs(write(plain, plain))
    second = load_runs(write(plain, plain, name="copy.jsonl"))

    ids = [run.thread_id for run in first.runs]
    assert ids == [run.thread_id for run in second.runs]
    assert len(set(ids)) == 2
    assert first.shared_ids == 0


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), (None, None), (1, True), (0, False), (1.0, True)]
)
def test_success(write, value, expected):
    (run,) = load_runs(write(json.dumps({"success": value, "messages": MESSAGES}))).runs

    assert run.success is expected


BAD = [
    ("not json", "not JSON"),
    ('{"messages": [', "not JSON"),
    ("[", "one run a line"),
    ("{}", "no 'messages'"),
    ('{"prompt": "x", "completion": "y"}', "no 'messages' in the object (it has 'prompt', 'completion')"),
    ('{"messages": "hello"}', "must be a list, found a text"),
    ('{"messages": []}', "empty"),
    ("[]", "empty"),
    ("3", "found a number"),
    ('"text"', "found a text"),
    ("null", "found null"),
    ("true", "found true"),
    ('["hello"]', "message 0 must be an object, found a text"),
    ('[{"role": "user", "content": "x"}, null]', "message 1 must be an object, found null"),
    (f"[{LINE}]", "a list of runs"),
    ('[{"content": "no role"}]', "message"),
    ('[{"role": "nobody", "content": "x"}]', "message"),
    (json.dumps({"messages": MESSAGES, "success": "yes"}), "'success' must be true, false or null"),
    (json.dumps({"messages": MESSAGES, "id": ["a"]}), "'id' must be a string, found a list"),
    (json.dumps({"messages": MESSAGES, "user_id": True}), "'user_id' must be a string"),
    (b'{"messages": "\xff"}', "not UTF-8"),
    ("[" * 100_000, "nested too deeply"),
    ('{"id": ' + "9" * 10_000 + ', "messages": []}', "not JSON"),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=range(len(BAD)))
def test_a_malformed_line_is_named_and_nothing_is_returned(write, line, said):
    with pytest.raises(LogError) as caught:
        load_runs(write(LINE, "", line, LINE))

    assert caught.value.line == 3
    assert str(caught.value).startswith("runs.jsonl, line 3: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    log = load_runs(write(LINE, "", line, LINE), lenient=True)
    assert [run.line for run in log.runs] == [1, 4]
    assert [error.line for error in log.skipped] == [3]
    assert log.shared_ids == 1


def test_damaged_gzip(tmp_path):
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join([LINE] * 2000).encode())[:-20])

    with pytest.raises(InputError, match="gzip file is damaged"):
        load_runs(path)


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_runs(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        load_runs(tmp_path)


@settings(max_examples=80)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.integers(0, 200))
def test_any_bytes_are_runs_or_log_errors(tmp_path_factory, noise, at):
    text = LINE.encode()
    text = text[:at] + noise + text[at:]
    assume(not text.startswith(b"\x1f\x8b"))  # what looks like gzip is one, or an error of the whole file
    path = tmp_path_factory.mktemp("log") / "runs.jsonl"
    path.write_bytes(text)

    log = load_runs(path, lenient=True)
    if log.skipped:
        with pytest.raises(LogError):
            load_runs(path)
    else:
        assert load_runs(path) == log
