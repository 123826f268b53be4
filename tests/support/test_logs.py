"""Messages by topic: what is shown, and that those of worker processes arrive."""

import logging
from pathlib import Path

import pytest

from tilesmith.support import logs
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options


@pytest.fixture(autouse=True)
def _quiet_again():
    yield
    for topic in logs.TOPICS:
        log = logs.logger(topic)
        log.setLevel(logging.NOTSET)
        log.removeHandler(logs._shown)


def test_only_the_topics_asked_for_are_shown(capsys):
    Options.from_environment({"TILESMITH_LOGS": "schedule, cache"}).show_logs()
    logs.logger("schedule").debug("conv1: %s", "another rule")
    logs.logger("tuning").debug("nobody asked")
    out, err = capsys.readouterr()
    assert out == "" and err == "tilesmith.schedule: conv1: another rule\n"


def test_all_stands_for_every_topic():
    assert logs.parse_topics("all") == tuple(logs.TOPICS)
    assert logs.parse_topics("") == ()
    assert logs.parse_topics("cache,,cache") == ("cache",)


def test_an_unknown_topic_is_an_error():
    with pytest.raises(UsageError, match="there is no topic 'shedule'; expected all, or some of"):
        Options.from_environment({"TILESMITH_LOGS": "shedule"})


def test_options_of_the_program_win_over_the_environment():
    assert Options.from_environment({"TILESMITH_LOGS": "cache"}, logs="tuning").logs == "tuning"


def test_messages_of_another_process_are_logged_here(caplog):
    with logs.collected(["records"]) as messages:
        logs.logger("records").info("%d rows", 3)
    assert messages == [("records", logging.INFO, "3 rows")]
    caplog.set_level(logging.INFO, "tilesmith.records")
    logs.repeat(messages)
    assert "3 rows" in caplog.messages


def test_the_documentation_lists_every_topic():
    text = Path(__file__).parents[2].joinpath("docs/getting-started.md").read_text()
    for topic, about in logs.TOPICS.items():
        assert f"| `{topic}` | {about} |" in text
