"""Generated codecs: made once, visible in tracebacks, and equal to the snapshots."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

import pytest

from kafka_async.errors import DecodeError
from kafka_async.protocol import compiler
from kafka_async.protocol.__main__ import main
from kafka_async.protocol.messages.list_offsets import ListOffsetsResponse
from kafka_async.protocol.messages.metadata import MetadataResponse

SNAPSHOTS = sorted((Path(__file__).parent / "data").glob("codec_*.txt"))


def test_makes_codec_once() -> None:
    assert compiler.encoder(MetadataResponse, 9) is compiler.encoder(MetadataResponse, 9)
    assert compiler.decoder(MetadataResponse, 9) is compiler.decoder(MetadataResponse, 9)
    assert compiler.decoder(MetadataResponse, 9) is not compiler.decoder(MetadataResponse, 10)


def test_traceback_shows_line_of_codec() -> None:
    with pytest.raises(DecodeError) as caught:
        ListOffsetsResponse.decode(b"\0", 4)
    cause = caught.value.__cause__
    assert cause is not None
    last = traceback.extract_tb(cause.__traceback__)[-1]
    assert last.filename == "<kafka_async.protocol decode_ListOffsetsResponse_v4>"
    assert last.line is not None
    assert "m.throttle_time_ms" in last.line


def test_source_survives_check_of_line_cache() -> None:
    compiler.plain_encoder(ListOffsetsResponse, 4)
    linecache.checkcache()
    assert linecache.getline("<kafka_async.protocol encode_ListOffsetsResponse_v4>", 1)


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: path.stem)
def test_generated_source_matches_snapshot(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, name, version = snapshot.stem.split("_")
    assert main([name, version]) == 0
    assert capsys.readouterr().out == snapshot.read_text(encoding="utf-8")


def test_snapshots_exist() -> None:
    assert len(SNAPSHOTS) == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "usage"),
        (["FetchResponse"], "usage"),
        (["FetchResponse", "x"], "usage"),
        (["FetchResponse", "99"], "FetchResponse has no version 99, only 4-18"),
        (["Nothing", "0"], "'Nothing'"),
        (["LeaderAndIsrRequest", "0"], "removed"),
    ],
)
def test_explains_invalid_arguments(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert error in output.err
    assert output.out == ""


def test_prints_message_without_key_and_request_of_api(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["EndTxnMarker", "0"]) == 0
    assert "def encode_EndTxnMarker_v0" in capsys.readouterr().out
    assert main(["Heartbeat", "4"]) == 0
    assert "def decode_HeartbeatRequest_v4" in capsys.readouterr().out
