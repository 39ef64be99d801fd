"""The first error of what died first: the cause of last resort. Pure.

A line is the origin of a death by its form: an exception's last line, or a level of a logger. One
that only has the words of an error says less, and what follows from the end of another process is
first only where nothing else stands. What reports an end counts for nothing here.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from fabbench.model.patterns import lazy

_BEFORE = (
    r"^(?:\[[^\]]{1,80}\](?:<\w+>)?:? ?|\([^)]{1,60}\) ?|<[^>]{1,40}>:? ?|\d[\d:.,/TZ+-]*:? |\d+: ?"
    r"|(?=[A-Za-z_.-]{0,60}\d)[\w.-]{2,120}+: |(?:ERROR|CRITICAL|FATAL)(?:: | )){0,6}?"
)
"""What launchers and loggers print before a line: tags in brackets, times, nodes and levels."""
_EXCEPTION = lazy(
    _BEFORE
    + r" *[\w.]++(?:(?<=Error)|(?<=Exception)|(?<=Interrupt)|(?<=Failure))(?:: |$)|^\s*what\(\): "
)
"""The last line of an exception of Python or C++."""
_LEVEL = lazy(
    r"(?:^|[\s\[(])(?:ERROR|FATAL|CRITICAL)(?:[]:)|]| -)"
    r"|^\W*(?:\w+ )?(?:FATAL )?ERROR ?\(|(?:^|: |^\[)[EF] [\w./-]+:\d"
    r"|^\[?[EF]\d{4} |: error: |\bPMI[Xx] ERROR: |^\s*Warning\s+(?:Failed|UnexpectedAdmissionError)"
    r"|\.(?:cpp|cu|h):(?:\w+:\d+: (?!.*ignoring)|\d+: (?:non-zero status|NULL value)\b)"
    r"|\.c:\d+ +(?:Error|Fatal): |\b(?:OPAL|ORTE|PRTE|PMIX)_ERROR_LOG: "
    r"|(?<!cuInit: )\bCUDA_ERROR_[A-Z_]{1,40}(?:: |\] )"
    r"|\b[a-z]+\.(?:err|crit|alert|emerg)\[|^WARN: .{0,200}\bSkipping\b"
    r"|^\(raylet\) (?:A worker died|The node .{0,200} marked dead)"
    r'|[]>)] +(?:[Ee]rror|fatal): |^Error: |\blevel"?[=:] ?"?(?:error|fatal|panic|critical)\b'
)
"""A line that its logger marks as an error; events of Kubernetes and Ray.

Also a line of a source file that says so: of NVSHMEM, UCX and Open MPI.
"""
_REPORTS = lazy(
    r"\b(?:ChildFailedError|CalledProcessError|DistBackendError|nccl[A-Z]\w*Error|RayTaskError"
    r"|ProcessRaisedException|ActorDiedError|KeyboardInterrupt|exitcode)\b"
    r"|\b(?:exit(?:ed|s|ing)?|return(?:ed)?)\b.{0,20}\b(?:code|status)\b(?!.*\bstderr: [^\s\"'])"
    r"|\berror code: -?\d+$|\breturned -?\d+\.$|\bspank\b"
    r"|couldn't start container|failed to import docker image"
    r"|\bpyxis: {2,}(?! |\[ERROR\]|.{0,200}(?:error|[Ff]ail|denied|not found))"
    r"|printing (?:\w+|contents of) log|\bJob finished\b|\bbe(?:en)? aborted\b"
    r"|\bfailed to start\.|\bhit an exception\b|\bSee (?:root cause|stack trace)\b"
    r"|\bStack trace of the failed "
)
"""What reports the error of another process or library.

Of a log that pyxis quotes, every line has the level of an error, and few are one.
"""
_FOLLOWS = lazy(
    r"(?i:\bconnection (?:was )?(?:reset|aborted|closed|lost|terminated)\b|\bbroken pipe\b"
    r"|\bclosed by (?:the )?(?:remote|peer|foreign|localrank)\b"
    r"|\bremote (?:process|peer|end|side|connection)\b.{0,20}\b(?:exited|closed|disconnected|gone)"
    r"|\bpeer\b.{0,40}\b(?:disconnected|exited|died|is gone)\b"
    r"|\banother (?:task|process|rank|worker|node)\b.{0,20}\b(?:died|failed|exited)\b"
    r"|\b(?:communicator|collective|operation|job|step) (?:was|is|has been) (?:aborted|cancell?ed)"
    r"|\b(?:closing|received|caught|got|by) (?:signal )?sig(?:term|quit|kill|int)\b"
    r"|\bwatchdog\b|\bheartbeat\b|\bprevious operation returned\b|\bsocket recv failed while\b"
    r"|\b(?:taking|bringing|tearing) .{0,30}\bdown\b|\bshutting down\b|\bterminating\b"
    r"|\bretcode \d+\b|->\s?\d+(?: \([^)]*\))?(?: \[[^\]]*\])?$"
    r"|\bkilling (?:sub)?process|\bin a background process\b|\babove exception\b"
    r"|\b(?:socket )?eof\b|\b(?:died from|killed by|exited on) signal 15\b"
    r"|^\[(?:proxy:|mpiexec@).*\b(?:assert|engine error|error (?:waiting|status)|badly)\b"
    r"|\bfrom (?:target|rank|peer|task) \d+ failed|\b_\w+:_?\w+ failed$)"
)
"""What follows from the end of another process, or waits for one."""
_VAGUE = lazy(
    r"(?i:\bfor some reason\b|\ban (?:\w+ )?error (?:has )?occurred\b|\bother mpi error\b"
    r"|\bunhandled (?:\w+ )?error\b(?!.*\blast\b)|\bunspecified\b(?! launch)"
    r"|\binternal (?:mpi )?error\b(?!.*\blast\b)"
    r"|\bunknown result\b|\bsome \w+ operations\b|\bTest (?:\w+ )?failure\b"
    r"|\bcompletion with error\b"
    r"|\bthe following\b|\bhit an exception\b|\bpreviously reported\b"
    r"|\bstep aborted\b"
    r"|\b(?:one or more|at least one) (?:[\w-]+ ){0,2}(?:process|rank|daemon|task|worker)"
    r"|^\W*(?:mpirun|mpiexec|prterun|orterun|srun|torchrun)\b.{0,30}"
    r"\b(?:noticed|detected|was unable|has exited)\b)"
    r"|\bFAILED$|[:{]\s*$|\bmay abort$|\bnot found, potentially\b"
)
"""States an error of any kind, or that of others, or opens what says it."""
_ADVICE = lazy(
    r"(?i:^\W*(?:\[[^\]]*\]:? )?(?:you|please|try|see|check|set|use|for (?:more|details)"
    r"|to (?:enable|see|avoid|debug|fix)|this (?:is )?(?:usually|may|can|often|could|likely)"
    r"|usually|\d+ more process|note|hint|if you|make sure|ensure)\b"
    r"|\bmany reasons\b|\bfile an issue\b|\bhelp / error messages\b"
    r"|\busually (?:indicates|reflects)\b)"
)
"""Advice, or help on errors of a kind."""
_ENDED = lazy(
    r"(?i:\b(?:died|exited|killed|terminated|dumped|caught|received|got|fell)\b.{0,60}"
    r"\bsignal:? \(?(?!15\b)\d+|\(core dumped\)|\bexit ?code: -?\d+)"
)
"""A signal, or a status, that ended a process; signal 15 is what launchers send to the others."""
_GOES_ON = lazy(
    r"(?i:(?<!last nccl )\bwarn(?:ing)?\b(?!.*\b(?:skipping|deadlock)\b)"
    r"|\bignor(?:ed?|ing)\b|\bfall(?:ing|s)? ?back\b"
    r"|\bretry(?:ing)?\b|\bcontinu(?:e|ing)\b|\bnon-?fatal\b|\bdeprecated\b|\binstead\b)"
    r"|(?:^|\[)[IW](?:\d{4})? |(?:^|[\s[(])INFO(?:[]:)]| \d)"
)
"""What says itself that the program goes on."""
_ANNOUNCES = lazy(
    r"(?:Last error|what\(\)|Caused by|\b[Ee]rror\(s\) in [\w-]{1,60}):\s*$"
    r"|^(?=.*\bERROR\b).*: \{\s*$|\"message\": \{\s*$"
)
"""Ends of lines below which an error stands; of JSON, too."""
_WORDS = lazy(
    r"(?i:\b(?:error|fail(?:ed|ure|s)?|fatal|cannot|can't|could not|couldn't|unable|not found"
    r"|no such|unknown|unrecognized|invalid|denied|refused|unreachable|illegal|abort(?:ed)?"
    r"|exception|exceeded|mismatch|not enabled|not supported"
    r"|not permitted|timed out|died|no [\w ]{1,40}found|undefined|missing|(?:does no|doesn')t exist"
    r"|unavailable|not (?:available|installed|initialized|a [\w-]+ command)|rejected|corrupt(?:ed)?"
    r"|crash(?:ed)?|no (?:route|space)|incompatible|insufficient|expired|forbidden|unauthorized"
    r"|out of (?:memory|range|resources)|too many|violation|not enough|exhausted|fault"
    r"|panicked|deadlock"
    r"|time[ -]?out(?! ?[=:(\d])|time limit|stalled|hung|lost)\b|^usage: )"
)
_DEATH = lazy(
    # an exception, or an error, and what it says (no count of them: `Error: 0`)
    r"(?<![\w.'\"`])[\w.]*(?:Error|Exception|Interrupt)(?:\(\w*\))?(?::(?! *0\b)|$)"
    r"|\b(?:error|fatal|panic)(?:\[\w+\])?:(?! *0\b)|Traceback \(most recent|^\s*what\(\): "
    r"|\b(?:\w*_)?(?:ERROR|FATAL|CRITICAL|PANIC|EXCEPTION)(?:_\w+)?\]?:(?! *0\b)"
    r"|(?:^|[]\s])(?:\[[EF]\]|\[?[EF]\d{4} )"
    # how another process ended
    r"|(?i:\b(?:exit(?:ed|s|ing)?|return(?:ed|s)?)[ _-]?(?:with|code|status)\b.{0,20}?[ :=(]-?[1-9]"
    r"|\bnon-?zero (?:exit )?(?:status|code)|\bsignal[ :=(]{1,3}[1-9]"
    r"|\b[1-9]\d? (?:death )?signal\b"
    r"|\bsig(?:kill|term|segv|abrt|bus|int|hup|fpe|ill|quit)\b|\bcancell?ed\b|\baborted\b"
    r"|(?<!\b0 )\bfailed\W*$|\bkilled\b|\bcrashed\b|\bcore dumped\b"
    r"|\bterminated (?:by|with|due|un|ab)|\bsegmentation fault|\bbus error\b|\bpreempted\b"
    r"|\b(?:process|rank|worker|task|job|actor|node)\b.{0,40}\b(?:died|failed\b(?! to))\b"
    r"|\bout[ _]of[ _]mem"
    r"|\btimed[- ]out\b|\btimeout (?:reached|expired|exceeded)|\bbroken pipe\b"
    r"|\b(?:closed|reset) by (?:remote |the )?(?:peer|host)|\bconnection lost\b)"
    r"|(?<!\b0 )\bFAIL(?:ED|URE)\b(?![:=]? *0\b)|\b[A-Z]\w+(?:Exceeded|Killed|Failed|Evicted)\b"
    r"|\b(?:TIMEOUT|(?:NODE|BOOT)_FAIL)\b"
    r"|\bmake(?:\[\d+\])?: \*\*\* |\bterminate called"
)
"""The shapes of a death: what a program, or what has started it, prints last."""
_USUAL_END = lazy(
    # blanks, rules, banners and headings, prompts, commands that a shell shows
    r"\W*|.*: *|\s*(?:#|[-=*~]{3}).*|\S*[$#>%] ?.*"
    r"|\[?[\w.-]++@.*[$#>%] ?.*|\++ .*|logout|exit"
    # rows of another table, records, counters and times
    r"|\s*+[|{[].*[]|},]\s*|(?:\s*+\S++)?(?:[\s|]++-?[\d.]++(?:[eE][+-]?\d+)?%?)+\s*"
    r"|\s*+[\w.()/-][\w.()/ -]{0,60}+\s*+[:=]\s*-?\d.*|.*\w=-?\d.*"
    r"|(?:real|user|sys|total|[Ee]lapsed)\b.*\d.*"
    r"|(?:\w{3},? )?\w{3} +\d+ .*\d\d:\d\d.*|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*"
    # debug lines, and what says that all is well
    r"|.*\b(?:INFO|DEBUG|TRACE)\b.*|\[[\w.-]+:\d+\] .*|libfabric:\d+:.*"
    r"|(?i:.*\b(?:done|finish(?:ed|ing)|complete(?:d|s)?|success\w*|end(?:ed|s| of))\b.*"
    r"|.*\b(?:passed|0 failed|counters?)\b.*"
    r"|.*\b(?:code|status)\W{1,3}0\b.*|connection to \S+ closed\W*)"
)
"""Lines that may stand below the last row of any whole table."""
_SPECIFIC = lazy(
    r"(?i:\b(?:cannot|can't|could not|couldn't|unable to|not found|no such|denied|invalid)\b)"
)
"""Says what could not be done, whatever else the line reports."""
_CODE = lazy(r' {4}(?! *")')
"""Indentation of a line of code in a traceback, or of JSON's braces: not what was announced."""
# Lines without an error after which an earlier one is taken to be overcome
_OVERCOME_AFTER = 200
# Lines without an error that may stand between errors of one incident
_NEAR = 2
# Lines without an error that may follow the last words of what died
_LAST = 5
_OF_STACK = lazy(
    r"(?:(?:\([^)]{1,60}\) )?(?:ERROR|CRITICAL) [^]]{0,80}\] )?(?:  |\t|#|│|╭|╰)"
    rf"|{_BEFORE} *(?:File \"|frame #|Traceback|Exception raised from |#\d|During handling of )"
)
"""Part of a stack, as it stands or behind what stands before each line."""
_PARAGRAPH = lazy(r"  \S")
"""A line that prose sets off from the rest, if the one above is empty."""
_FRAME = lazy(r"(?:\S+ )?\w+\(\d+\)\.*:(?!.*, error stack:)(?P<says> *+(?!.*\bfailed\s*$)\S)?")
"""A frame of MPICH's error stack; it may say more than that a call failed."""
# A rule, or a row of a table, which may quote errors
_RULE = lazy(r"\s*[-=*+~]{10,}\s*|\|.*")
_MOST_PROCESSES = 100
_PROGRAM = "program"
_STACK = "stack"


_STEMS = (  # noqa: SIM905 - words, as in the patterns above
    "error|fail|fatal|can|couldn|could not|unable|not found|no such|unknown|unrecognized|invalid"
    "|denied|refused|unreachable|illegal|abort|exce|mismatch|not enabled|not supported"
    "|not permitted|timed out|interrupt|critical|what()|caused by|non-zero status|null value"
    "|died|dead|panic|: e |: f |undefined|missing|not exist|n't exist|unavailable|not available"
    "|not installed|not initialized|not a |reject|corrupt|crash|no route|no space|incompat"
    "|insufficient|expired|forbidden|unauthorized|out of |too many|violation|.err[|.crit[|.alert["
    "|.emerg[|exit|sig|cancel|kill|terminat|traceback|timeout|timed-out|return|non-zero|nonzero"
    "|by peer|by remote|by the|by host|pipe|connection lost|out_of_mem|dumped|segmentation|preempt"
    "|evicted|make: |make[|[e]|[f]"
    "|not enough|exhaust|fault|time limit|stalled|hung|lost|eof|deadlock"
).split("|")
_STEM_FORMS = lazy(r"^(?:usage: |[ef] |\[?[ef]\d{4} |(?=.*found).*?no [\w ]{1,40}found)")
"""One of these, or of these forms, is in every line about an error or a death, in small letters."""


class ErrorKind(IntEnum):
    """What a line says of a death. Of several, the first in this order says most."""

    ORIGIN = 0
    """Why a program gave up, by its form."""
    WORDS = 1
    """It has the words of an error."""
    VAGUE = 2
    """It states an error of any kind."""
    ENDED = 3
    """It reports a signal."""
    FOLLOWS = 4
    """It follows from the end of another process."""
    GOES_ON = 5
    """The program goes on, as it says itself."""


class ErrorLine(NamedTuple):
    """A line about an error."""

    number: int
    text: str


@dataclass(slots=True)
class FirstErrors:
    """The first errors that an execution printed since it last went on."""

    number: int = 0
    """That of the line that is being read."""
    reasons: dict[str, ErrorLine] = field(default_factory=dict)
    """Process of NCCL → its first warning since its last progress.

    Also of the program: the first line that says why it, or a library, gave up.
    """
    echoes: dict[str, ErrorLine] = field(default_factory=dict)
    """Process → its first warning that only follows from the end of another process."""
    _said: dict[ErrorKind, ErrorLine] = field(default_factory=dict)
    """The first lines that by their form end a program, and do not say why, by what they say."""
    _last_frame: int = 0
    """Number of the last frame of the first error stack."""
    _above: str = ""
    """The line above."""
    _hints: dict[ErrorKind, ErrorLine] = field(default_factory=dict)
    """The first lines that only have words of an error, by what they say."""
    _is_announced: bool = False
    """Whether the last line said that the next one is the error."""
    _is_report: bool = False
    """Whether lines belong to a report of another program's end."""
    _start_of_incident: ErrorLine | None = None
    """The first words of an error among the lines that stand together."""
    _last_of_incident: int = 0
    """Number of the last line of these, or of the stack below it."""
    _quiet_lines: int = 0
    """Lines without an error since the last one with one."""
    death: ErrorLine | None = None
    """The first line of the shape of a death since the last one that a benchmark read."""
    followed: str = ""
    """The first line since then that is not usual below a table."""
    _ignored: int = 0
    """How many more lines of the shape of a death Python ignores."""

    def keep_warning(self, process: str, message: str) -> None:
        """Keep a warning of a process of NCCL, if it is the first since its last progress."""
        kept = self.echoes if follows(message) else self.reasons
        if len(kept) < _MOST_PROCESSES:
            kept.setdefault(process, ErrorLine(self.number, message))

    def forget_warnings(self, process: str) -> None:
        """Forget what a process warned of: it goes on, and the program has not said its last."""
        self.reasons.pop(process, None)
        self.echoes.pop(process, None)
        if process == _PROGRAM:
            self._said.clear()
            self.reasons.pop(_STACK, None)
        self._quiet_lines = max(self._quiet_lines, _LAST + 1)  # so that `is_last` does not hold

    def gave_up(self, text: str, *, is_announced: bool = False) -> None:
        """Take a line that says why a program or library gave up.

        `is_announced`: the line above said so, whatever its own words are. The first words of an
        error that stand with it say more than it does.
        """
        self._quiet_lines = 0
        self._join_incident()
        if _PROGRAM in self.reasons:  # the first counts
            return
        kind = ErrorKind.ORIGIN if is_announced else _kind_of_error(text)
        error = ErrorLine(self.number, text)
        if _REPORTS.search(text):
            self._hints.setdefault(ErrorKind.ENDED, error)
        elif kind is ErrorKind.GOES_ON:  # whatever its form, it did not end the program
            self._hints.setdefault(kind, error)
        elif kind is ErrorKind.ORIGIN:
            self.reasons[_PROGRAM] = self._start_of_incident or error
        else:
            self._said.setdefault(kind, error)

    def _read_frame(self, text: str, *, says: str | None) -> None:
        """Read a frame of an error stack: of those that say a reason, the innermost comes last."""
        goes_on_below = self.number == self._last_frame + 1
        if says and (goes_on_below or _STACK not in self.reasons):
            self._join_incident()
            self.reasons[_STACK] = self._start_of_incident or ErrorLine(self.number, text)
            self._last_frame = self.number
        self._last_of_incident = self.number

    def report(self, text: str) -> None:
        """Read a report of another program's end; up to a rule, what follows only explains it."""
        self._is_report = True
        self.read(text)

    def read(self, text: str) -> None:
        """Read a line that no benchmark knows: about an error, of a stack, or neither."""
        small = text.lower()
        may_be_error = any(map(small.__contains__, _STEMS)) or _STEM_FORMS.match(small)
        self._read_end(text, may_be_death=bool(may_be_error))
        frame = _FRAME.match(text)
        if _RULE.fullmatch(text):  # a report of another program ends there
            self._is_report = False
        elif frame is not None:
            self._read_frame(text, says=frame["says"])
        elif self._is_announced or may_be_error:
            self._read_error(text)
        elif _OF_STACK.match(text):  # it belongs to the error above
            self._last_of_incident = self.number
        else:
            self._count_quiet_line()
        self._above = text

    def _read_end(self, text: str, *, may_be_death: bool) -> None:
        """Keep what may stand below the last row: a death, or the first line that is not usual."""
        if may_be_death:
            self._read_death(text)
        if not (self.followed or _USUAL_END.fullmatch(text)):
            self.followed = text

    def _read_death(self, text: str) -> None:
        """Keep a line if it has the shape of a death, which ends a run if no row follows."""
        if "Exception ignored" in text:  # by Python, which goes on
            self._ignored = 2  # the first and the last line of the traceback
        elif not self.death and _DEATH.search(text) and not goes_on(text):
            if self._ignored:
                self._ignored -= 1
            else:
                self.death = ErrorLine(self.number, text)

    def went_on(self) -> None:
        """Note that a benchmark read a line: what stands above it ended nothing."""
        self.death = None
        self.followed = ""

    def _read_error(self, text: str) -> None:
        # By its form an origin; else part of a stack; else, outside of reports, only words.
        # What is indented as code is a traceback's, and not the error that was announced.
        announces = _ANNOUNCES.search(text) is not None
        is_announced = self._is_announced and not _CODE.match(text)
        self._is_announced = announces
        if not announces and (is_announced or self._says_why(text)):
            self.gave_up(text, is_announced=is_announced)
        elif _OF_STACK.match(text) and (self._above or not _PARAGRAPH.match(text)):
            self._last_of_incident = self.number
        elif not self._is_report:
            self._read_words(text)

    def _says_why(self, text: str) -> bool:
        # In a report of another program's end every line may have the level of an error.
        is_logged = not self._is_report and _LEVEL.search(text)
        return bool(is_logged or _ENDED.search(text) or _EXCEPTION.search(text))

    def _read_words(self, text: str) -> None:
        """Read a line that is neither an error by its form nor part of one."""
        is_error = _WORDS.search(text) or _ENDED.search(text)
        if is_error and not _ADVICE.search(text):
            self._quiet_lines = 0
            self._join_incident()
            self._keep_words(text)
        else:
            self._count_quiet_line()

    def _keep_words(self, text: str) -> None:
        """Keep a line that has words of an error, as what it says least."""
        # No origin: that takes the form of an error.
        kind = max(_kind_of_error(text), ErrorKind.WORDS)
        is_report = _REPORTS.search(text)
        if is_report and not _SPECIFIC.search(text):
            kind = max(kind, ErrorKind.VAGUE)
        error = ErrorLine(self.number, text)
        self._hints.setdefault(kind, error)
        # A report, or a heading of what follows, says less than the origin below it.
        is_heading = text.rstrip().endswith((":", "{"))
        if kind is ErrorKind.WORDS and not (is_report or is_heading):
            self._start_of_incident = self._start_of_incident or error

    def _join_incident(self) -> None:
        """Count a line about an error to its incident: far below the last one a new one begins."""
        if self.number > self._last_of_incident + _NEAR + 1:
            self._start_of_incident = None
        self._last_of_incident = self.number

    def _count_quiet_line(self) -> None:
        """Count a line without an error; after many, the program went on."""
        self._quiet_lines += 1
        if self._quiet_lines > _OVERCOME_AFTER:
            self.forget_warnings(_PROGRAM)  # also of a program that said why it gave up
            self._hints.clear()

    @property
    def hint(self) -> str:
        """The first line that only has words of an error; empty: there is none."""
        hints = self._hints  # by kind: the lowest says most
        return hints[min(hints)].text.strip() if hints else ""

    def first(self) -> str:
        """Return the first line that says why; empty: there is none.

        What follows from another process's end does not, unless nothing stands before it.
        """
        if self.reasons:
            return min(self.reasons.values()).text.strip()  # that of the lowest line number
        said = dict(self._said)
        if self.echoes:
            echo = min(self.echoes.values())
            said[ErrorKind.FOLLOWS] = min(echo, said.get(ErrorKind.FOLLOWS, echo))
        if not said:
            return ""
        least = min(said)
        error = said[least]
        words = self._hints.get(ErrorKind.WORDS, error)
        # What follows is first where it is; anything else says less than words of an error.
        return (min(words, error) if least is ErrorKind.FOLLOWS else words).text.strip()

    def is_last(self) -> bool:
        """Return whether the text ends with what a program said of its end."""
        if self._quiet_lines > _LAST:
            return False
        return _PROGRAM in self.reasons or bool(self._said)


def follows(text: str) -> bool:
    """Return whether a line about an error only follows from the end of another process."""
    return _FOLLOWS.search(text) is not None


def says_little(text: str) -> bool:
    """Return whether a line about an error does not say why: others say more, if they are known."""
    return _kind_of_error(text) > ErrorKind.WORDS


def goes_on(text: str) -> bool:
    """Return whether a line says itself that the program goes on."""
    return _GOES_ON.search(text) is not None


def _kind_of_error(text: str) -> ErrorKind:
    """Return what a line about an error says of a death, as if it had the form of an error."""
    if follows(text):
        return ErrorKind.FOLLOWS
    if goes_on(text):
        return ErrorKind.GOES_ON
    if _ENDED.search(text) and not _EXCEPTION.search(text):
        return ErrorKind.ENDED
    is_vague = _VAGUE.search(text) or _ADVICE.search(text)
    return ErrorKind.VAGUE if is_vague else ErrorKind.ORIGIN
