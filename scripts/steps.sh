# The steps of a run: each is tried, whatever failed before, and the end of the run names all that failed. Sourced by
# scripts/test, after environment.sh.
#
# A function that is called where bash looks at its status (`if`, `||`) goes on after errors in it. So no function here has a
# status to look at, and what runs in a step is always a program: what came of it is in `passed`, and in `made`.
# shellcheck shell=bash
# Who sources this reads `ready`.
# shellcheck disable=SC2034

failures=()
not_run=()
flaky=()
skipped=()
# What later steps need and earlier ones made, by name.
declare -A made=()
# Whether the last step passed: yes, or nothing.
passed=
# Whether the run came to its end, and was not ended by an error or a signal on the way.
finished=
# Where tests report to, a file for each step.
reports=$CARGO_TARGET_DIR/test-reports
# It lies in the checkout, wherever things are built.
nextest_report=$root/target/nextest/ci/junit.xml

# Whether the run has taken as many minutes as TITO_TEST_MINUTES allows, if it does say so. What is left is skipped then, and
# named at the end: a run that is ended from outside says nothing of all that passed.
is_late() {
    [[ -n ${TITO_TEST_MINUTES:-} ]] && ((SECONDS >= TITO_TEST_MINUTES * 60))
}

# skip_late TEXT: says what is left out since the run is late.
skip_late() {
    skip "$1, as the run had taken $TITO_TEST_MINUTES minutes"
}

# Has the run end with its summary, however it ends: EXIT is the only way out.
watch_steps() {
    rm -rf "$reports"
    mkdir -p "$reports"
    trap 'summarise $?' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# step TEXT COMMAND...: announces, runs and times a program; a failure is noted.
step() {
    local text=$1 status=0
    begin "$@"
    "${@:2}" || status=$?
    settle "$text" "$status"
}

# begin TEXT COMMAND...: announces a step.
begin() {
    [[ $(type -t "$2") != function ]] || fail "'$1' calls a function, which goes on after errors in it"
    processor_seconds
    step_began=$SECONDS step_worked=$worked
    say "$1: ${*:2}"
}

# settle TEXT STATUS: sets `passed`, and notes a failure.
settle() {
    processor_seconds
    local took="$((SECONDS - step_began)) s, $((worked - step_worked)) s of processors"
    if (($2 == 0)); then
        passed=yes
        say "$1: passed in $took"
    else
        passed=
        say "$1: FAILED with status $2 in $took"
        failures+=("$1 (status $2)")
    fi
}

# value VARIABLE TEXT COMMAND...: a step, whose output the variable gets.
value() {
    local text=$2 status=0 step_output
    begin "${@:2}"
    step_output=$("${@:3}") || status=$?
    settle "$text" "$status"
    printf -v "$1" %s "$step_output"
}

# nextest TEXT REPORT COMMAND...: a step of tests, whose failed and flaky tests are named at the end.
nextest() {
    local text=$1 report=$reports/$2.xml
    rm -f "$nextest_report"
    step "$text" "${@:3}"
    if [[ -f $nextest_report ]]; then
        mv "$nextest_report" "$report"
        name_tests "$text" "$report"
    elif [[ -n $passed && "$3 $4" == "cargo nextest" ]]; then
        failures+=("$text: there is no $nextest_report, so that no flaky test can be named")
    fi
}

# pytest TEXT REPORT COMMAND...: likewise; tests that fail are tried once more, and none is begun when the run is late.
pytest() {
    local text=$1 status=0 first=$reports/$2.xml second=$reports/$2-again.xml
    # The second at which it is late, which tests/notes/notes.py reads.
    local -x TITO_TEST_UNTIL=${TITO_TEST_MINUTES:+$((EPOCHSECONDS - SECONDS + TITO_TEST_MINUTES * 60))}
    local run=("${@:3}" -o "cache_dir=$reports/$2-cache" -o "junit_family=xunit1")
    local outcomes=("$first")
    begin "$text" "${run[@]}"
    "${run[@]}" --junit-xml="$first" || status=$?
    # Any other status is no failed test: no test was found, or pytest itself failed.
    if ((status == 1)); then
        say "$text: what failed is tried once more"
        status=0
        # However late it is: that takes seconds, and one that passes now saves the run.
        TITO_TEST_UNTIL='' "${run[@]}" --junit-xml="$second" --last-failed --last-failed-no-failures=none || status=$?
        if ((status < 2)); then outcomes+=("$second"); fi
    fi
    settle "$text" "$status"
    name_tests "$text" "${outcomes[@]}"
}

# name_tests TEXT REPORT [REPORT]: notes what failed, what passed only when it was tried again, and how many came too late.
name_tests() {
    local text=$1 listed kind name
    [[ -f $2 ]] || return 0
    listed=$(python3 scripts/outcomes.py "${@:2}") || listed="failed the report cannot be read: ${*:2}"
    while read -r kind name; do
        case $kind in
            failed) failures+=("    $text: $name") ;;
            flaky) flaky+=("$text: $name") ;;
            late) skip_late "$text: $name of its tests" ;;
        esac
    done <<<"$listed"
}

# makes NAME: later steps that need NAME can run if the last one passed, and only then.
makes() {
    made[$1]=$passed
}

# needs TEXT NAME...: sets `ready` for the caller; where something was not made, TEXT is named at the end as not run, and where
# the run is late, as skipped.
needs() {
    local text=$1 name missing=()
    shift
    for name in "$@"; do [[ -n ${made[$name]:-} ]] || missing+=("$name"); done
    ready=yes
    # First: what was not made may be what a late run did not begin, and if making it failed, that is named.
    if is_late; then
        ready=
        skip_late "$text"
    elif ((${#missing[@]})); then
        ready=
        not_run+=("$text, without $(join_names "${missing[@]}")")
        say "NOT RUN: ${not_run[-1]}"
    fi
}

join_names() {
    local IFS=,
    printf '%s' "$*" | sed 's/,/ and /g'
}

# skip TEXT: what was not checked, now and again at the end.
skip() {
    say "SKIPPED: $*"
    skipped+=("$*")
}

# tool NAME COMMAND...: a check that needs a tool which not every machine has.
tool() {
    local name=$1
    shift
    if command -v "$name" >/dev/null; then step "$name" "$@"; else skip "$name is not installed"; fi
}

# Sets worked to the seconds that processors worked for the commands that have ended, where the system says so.
processor_seconds() {
    local stat
    worked=0
    [[ -r /proc/self/stat ]] || return 0
    read -ra stat </proc/self/stat
    worked=$(((stat[15] + stat[16]) / $(getconf CLK_TCK)))
}

# summarise STATUS: the last thing of a run. Its status is 0 only if the run came to its end and nothing failed.
summarise() {
    local what status=$1 took="$((SECONDS / 60)) min $((SECONDS % 60)) s"
    trap - EXIT
    set +e
    stop_busy
    for what in ${failures[@]+"${failures[@]}"}; do say "FAILED: $what"; done
    for what in ${not_run[@]+"${not_run[@]}"}; do say "NOT RUN: $what"; done
    for what in ${flaky[@]+"${flaky[@]}"}; do say "FLAKY: $what"; done
    for what in ${skipped[@]+"${skipped[@]}"}; do say "SKIPPED: $what"; done
    if [[ -z $finished ]]; then
        ((status != 0)) || status=1
        say "ended early with status $status after $took; what comes after the last step above was not run"
        exit "$status"
    fi
    if ((status != 0 || ${#failures[@]} || ${#not_run[@]})); then
        say "failed in $took"
        exit 1
    fi
    say "everything else passed in $took"
    exit 0
}

busy=()

# start_busy COUNT: keeps as many processors busy until stop_busy, or until this script is gone.
start_busy() {
    local count=$1
    while ((${#busy[@]} < count)); do
        (
            trap - EXIT INT TERM HUP
            while kill -0 $$ 2>/dev/null; do
                for ((turn = 0; turn < 100000; turn++)); do :; done
            done
        ) &
        busy+=($!)
    done
}

stop_busy() {
    if ((${#busy[@]})); then
        kill "${busy[@]}" 2>/dev/null || true
        wait "${busy[@]}" 2>/dev/null || true
    fi
    busy=()
}
