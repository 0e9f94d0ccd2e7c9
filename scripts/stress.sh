# scripts/test --stress: tests that have to pass on a busy machine, each time. Sourced by scripts/test.
# shellcheck shell=bash

# Runs in which a test failed, a line for each: the test's name.
missed=()

# stress [--times N] [--busy N] [--filter TEXT] [SUITE...]: runs the suites, and notes which tests failed how often.
stress() {
    local times=3 processes=4 filter='' suites=() suite
    while (($#)); do
        case $1 in
            --times | --busy)
                [[ ${2:-} =~ ^[0-9]+$ ]] || fail "$1 takes a number"
                if [[ $1 == --times ]]; then times=$2; else processes=$2; fi
                shift
                ;;
            --filter)
                [[ ${2:-} =~ ^[A-Za-z0-9_:]+$ ]] || fail "--filter takes a part of the names of tests"
                filter=$2
                shift
                ;;
            program | it | clients) suites+=("$1") ;;
            *) fail "unknown argument $1; usage: scripts/test --stress [--times N] [--busy N] [--filter TEXT] [program] [it] [clients]" ;;
        esac
        shift
    done
    ((times > 0)) || fail "--times takes a number above 0"
    ((${#suites[@]})) || suites=(program it clients)
    need_tools
    cargo nextest --version >/dev/null 2>&1 || fail "cargo-nextest is missing; cargo install --locked cargo-nextest"
    for suite in "${suites[@]}"; do "stress_$suite"; done
    count_missed
    finished=yes
}

# The program without the adapter, as the full run has it.
stress_program() {
    local -x RUSTC_WORKSPACE_WRAPPER=$root/scripts/lint-rustc-without-adapter
    stress_nextest program 'all()' "${unoptimised[@]}" --test program
}

stress_it() {
    prepare_model
    local -x RUSTC_WORKSPACE_WRAPPER=$root/scripts/lint-rustc
    record_fidelity
    needs "tests/it with the real model and Python's recording" model recording
    if [[ -z $ready ]]; then return; fi
    local -x TITO_TEST_MODEL=$model TITO_REQUIRE_MODEL=1 TITO_TEST_FIDELITY=$recording TITO_REQUIRE_FIDELITY=1
    local -x TITO_CHECK_TESTS=yes
    stress_nextest it 'test(/^it::/)' "${shared[@]}" --lib
}

stress_clients() {
    prepare_model
    prepare_clients
    if [[ -z $ready ]]; then return; fi
    local run=("${client_tests[@]}" -p no:cacheprovider -o junit_family=xunit1)
    [[ -z $filter ]] || run+=(-k "$filter")
    rounds clients "$reports/stress.xml" "${run[@]}" --junit-xml="$reports/stress.xml"
}

# What both suites with the real model need, once. What tests/program leaves in the release's place is built over.
prepare_model() {
    local -x RUSTC_WORKSPACE_WRAPPER=$root/scripts/lint-rustc
    if [[ -z ${made[gguf]:-} ]]; then fetch; fi
    build_release
    convert_model
}

# stress_nextest SUITE EXPRESSION ARGUMENT...: builds the tests on an idle machine, and runs them on a busy one.
stress_nextest() {
    local suite=$1 expression=$2
    shift 2
    local run=(cargo nextest run --profile ci --retries 0 "$@")
    [[ -z $filter ]] || expression="$expression & test($filter)"
    step "build tests/$suite" "${run[@]}" --no-run
    makes "the build of tests/$suite"
    needs "tests/$suite" "the build of tests/$suite"
    if [[ -n $ready ]]; then rounds "$suite" "$nextest_report" "${run[@]}" -E "$expression"; fi
}

# rounds SUITE REPORT COMMAND...: runs the tests so many times beside busy processes, and keeps the reports.
rounds() {
    local suite=$1 report=$2 round noted name
    shift 2
    start_busy "$processes"
    for ((round = 1; round <= times; round++)); do
        rm -f "$report"
        noted=${#failures[@]}
        step "tests/$suite, $round of $times, beside $processes busy processes" "$@"
        if [[ -f $report ]]; then
            mv "$report" "$reports/stress-$suite-$round.xml"
            name_tests "tests/$suite, $round of $times" "$reports/stress-$suite-$round.xml"
        fi
        # The step is the first of them, and its tests follow.
        for name in "${failures[@]:noted + 1}"; do missed+=("tests/$suite: ${name#*: }"); done
    done
    stop_busy
}

# Ends the list of failures with each test, and in how many of the runs it failed.
count_missed() {
    local count name
    ((${#missed[@]})) || return 0
    while read -r count name; do
        failures+=("$name: in $count of $times")
    done < <(printf '%s\n' "${missed[@]}" | LC_ALL=C sort | uniq --count)
}
