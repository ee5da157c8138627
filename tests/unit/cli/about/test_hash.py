"""`sub hash`, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

ARGS = b'{"branch":"main","command":"git push","force":false}'
HASH = "e13c608f6d08e999ce8c39b52fa274a731ccab0e6b3b3e62cd23511b93d7527e"


@pytest.fixture
def sub_hash(tmp_path):
    def run(*options: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        env = {**os.environ, "HOME": str(tmp_path), "SUB_HOME": str(tmp_path / "sub"), "PYTHONUTF8": "1"}
        command = [sys.executable, "-m", "subluminal", "hash", *options]
        return subprocess.run(command, input=stdin, capture_output=True, env=env, cwd=tmp_path, timeout=30, check=False)

    return run


@pytest.mark.contract("HASH-002")
def test_standard_input_and_a_file_give_the_same_hash(sub_hash, tmp_path):
    (tmp_path / "args.json").write_bytes(b'{ "force": false, "command": "git push", "branch": "m\\u0061in" }\n')
    for result in (sub_hash(stdin=ARGS), sub_hash("-", stdin=ARGS), sub_hash("args.json")):
        assert (result.returncode, result.stdout, result.stderr) == (0, HASH.encode() + b"\n", b"")


def test_the_canonical_bytes_are_printed_exactly(sub_hash):
    result = sub_hash("--canonical", stdin='{"b": 1.50, "a": "é\\n"}'.encode())
    assert result.stdout == '{"a":"é\\n","b":1.5}'.encode()


def test_json_output_holds_hash_form_and_size(sub_hash):
    result = sub_hash("--json", stdin=b" " + ARGS)
    assert json.loads(result.stdout) == {"args_hash": HASH, "canonical": ARGS.decode(), "bytes": len(ARGS)}


@pytest.mark.parametrize(
    ("stdin", "sentence"),
    [
        (b"[1]", b"standard input: tool call arguments are a JSON object, not an array."),
        (b"1.5", b"not a number."),
        (b"null", b"not null."),
        (b'{"a":1,', b"standard input: This is not valid JSON"),
        (b"", b"This is not valid JSON"),
        (b'{"a":1}{"b":2}', b"but more follows"),
        (b'{"a":"\xff"}', b"not valid UTF-8 at byte 6"),
        (b'{"a":"\\ud800"}', b"surrogate"),
        (b'{"a":NaN}', b"NaN"),
        (b"[" * 100_000, b"nested more than"),
    ],
)
def test_bad_input_gets_a_sentence_and_exit_code_two(sub_hash, stdin, sentence):
    result = sub_hash(stdin=stdin)
    assert result.returncode == 2
    assert result.stdout == b""
    assert sentence in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_duplicate_key_is_named_without_obeying_its_control_characters(sub_hash):
    result = sub_hash(stdin=b'{"na\\u001b[31mme":1,"na\\u001b[31mme":2}')
    assert result.returncode == 2
    assert rb'The key is "na\x1b[31mme"' in result.stderr
    assert b"\x1b" not in result.stderr


def test_a_file_that_cannot_be_read_is_named(sub_hash, tmp_path):
    missing, directory = sub_hash("missing.json"), sub_hash(str(tmp_path))
    assert missing.returncode == directory.returncode == 2
    assert b"missing.json cannot be read: No such file or directory." in missing.stderr
    assert b"Is a directory" in directory.stderr


def test_two_output_forms_at_once_are_refused(sub_hash):
    result = sub_hash("--json", "--canonical", stdin=ARGS)
    assert result.returncode == 2
    assert b"exclude each other" in result.stderr


def test_help_shows_examples(sub_hash):
    result = sub_hash("--help")
    assert result.returncode == 0
    assert b"sub hash args.json" in result.stdout
