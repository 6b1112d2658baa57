"""The verbs of interfaces, by what they do to the world: general English, nothing about particular tools.

Words are in lower case. What is missing here counts as a change: a list that is too short costs a shortcut, one that
reads too much costs the user.
"""

from __future__ import annotations

from typing import Final

from langgraph_toolmem.words.split import stem
from langgraph_toolmem.words.vocabulary import word_set

READS: Final = word_set("""
get gets fetch read retrieve list search find lookup query view show display describe count check browse
inspect preview peek calculate compute estimate compare summarize summarise analyze analyse explain detect filter
is has are exists predict forecast parse translate geocode discover explore grep enumerate
""")
"""At the head of a name they read. Verbs of two faces are left out on purpose: resolve (a ticket), track (an event),
convert (a lead), select (a seat), watch (a repository), verify (a code), export, load, download, poll, pull."""

SHELL: Final = word_set("ls cat pwd wc du df tail diff whoami")
"""Commands of a shell that read: the whole name."""

NOUN_HEADS: Final = word_set(
    "list search view query count check show display filter read preview lookup browse compare"
)
"""Of these, those that are things as well: "list update" may be an update of a list."""

VERBS: Final = word_set("""
create add insert append prepend delete remove erase wipe purge destroy modify edit rename replace overwrite cancel
assign unassign reassign enable disable activate deactivate reactivate suspend unsuspend register unregister deregister
enroll subscribe unsubscribe install uninstall publish unpublish approve reject deny revoke submit send resend deliver
notify pay buy sell withdraw redeem acknowledge accept decline dismiss attach detach pop enqueue dequeue increment
decrement consume allocate deallocate provision deploy rollback restore revert undo terminate kill restart reboot
shutdown mute unmute unpin unfollow upvote downvote promote demote unban unblock unflag unlock unarchive
hide unhide synchronize migrate initialize initialise reconfigure configure write rewrite persist apply inject
duplicate extend renew expire invalidate truncate discard evict convert reschedule postpone toggle adjust refuel
mint upsert put fix repair escalate finalize finalise join leave authenticate authorize authorise
execute reserve unreserve deduct debit disburse reimburse blacklist whitelist quarantine impersonate rotate
regenerate reopen complete resume ingest bookmark retweet untag unassociate associate disconnect grant
""")
"""As they stand they are verbs and nothing else, and they change something."""

BOTH: Final = word_set("""
set reset update change save store lock mark tag label book order charge bill ship sign post tweet comment share
archive close open start stop move copy clone fork schedule trigger launch log record request report process queue file
release draft patch swap switch push commit merge drop clear empty flush trash void transfer deposit refund purchase
upload import export invite vote like dislike pin flag block ban claim stake burn fill touch bump refresh sync reply
forward dispatch exchange turn build run restock credit follow login logout email mail message call text pause
confirm ack checkout checkin dump kick rate review note reward bid trade rent lease issue mount format init unset
""")
"""Deeds and things: "the last update", "post an update"."""

DESTROYS: Final = word_set("""
delete remove erase wipe purge destroy drop cancel clear terminate kill revoke uninstall truncate flush empty trash
void discard unlink rm rmdir del mv shred deprovision decommission format
""")
"""What they do can hardly be undone."""

ALL_CHANGES: Final = VERBS | BOTH
STEMS: Final = frozenset(map(stem, ALL_CHANGES))
IRREGULAR: Final = word_set("sent written overwritten hidden paid bought sold withdrawn put set reset taken left shut")
"""Participles without -ed."""
HARMLESS_STATES: Final = word_set("""
updated ordered stored recorded posted published released opened closed shared processed set enabled disabled activated
applied filed logged issued rated reviewed returned formatted sorted tagged labelled labeled mounted built put
written associated converted configured refreshed scheduled registered exported called sent required credited
""")
"""How things may be without anybody doing it now: "data is updated hourly", "results are returned"."""

CONTROL: Final = frozenset(
    tuple(phrase.split())
    for phrase in (
        "transfer to",
        "transfer back",
        "transfer control",
        "hand off",
        "hand over",
        "hand back",
        "handoff",
        "handover",
        "delegate",
        "escalate",
        "route to",
        "goto",
        "go to agent",
        "switch to agent",
        "final answer",
        "final response",
        "give answer",
        "submit answer",
        "submit final",
        "submit result",
        "submit $",
        "submit solution",
        "finish",
        "done",
        "exit",
        "end $",
        "stop $",
        "terminate $",
        "complete $",
        "respond",
        "end conversation",
        "end chat",
        "end call",
        "end run",
        "end session",
        "end turn",
        "end task",
        "complete task",
        "ask human",
        "human input",
    )
)
"""How names begin of tools that end a run, or hand it over; ``$``: the name ends there."""
