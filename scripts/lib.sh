# shellcheck shell=bash
# What the scripts of this folder share: words, steps with the time left, and packages in spite of another apt.
# Source it with `program` set to the script's name.

# All of it goes to stderr: the output of `make demo ARGS=--json` is JSON also when there was something to set up.
say()  { clear_line; printf '%s: %s\n' "${program:?}" "$*" >&2; }
fail() { clear_line; printf '%s: error: %s\n' "$program" "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'say "interrupted; the next run begins where this one stopped"; exit 130' INT

# ---- steps ----------------------------------------------------------------------------------------------
# A terminal has one line that moves; elsewhere a step has a line when it begins and ends, and one each 15 s.
# Set `steps` to their number before the first.
steps=1 step=0
TELL_EVERY_S=15

terminal=no clear=''
if [ -t 2 ]; then terminal=yes clear=$'\r\033[K'; fi
clear_line() { printf '%s' "$clear" >&2; }

# Seconds since boot, into `now`: bash's SECONDS follow the wall clock, which a machine sets back while it boots.
read_clock() { read -r now _ </proc/uptime && now=${now%.*}; }

begin_step() { # title
    read_clock
    step=$((step + 1)) title=$1 begun=$now told=$now shown=''
    if [ $terminal = yes ]; then tell_progress 0 0; else say "$step of $steps: $title"; fi
}

tell_progress() { # done, total: whole numbers of anything; 0 0 where nobody counts
    read_clock
    local text="$step of $steps: $title, $((now - begun)) s" percent=0
    [ "$2" -eq 0 ] || percent=$((100 * $1 / $2))
    [ "$percent" -le 100 ] || percent=100 # more came than was announced
    [ "$percent" -le 0 ] || text+=", $percent %"
    if [ $terminal = yes ]; then
        [ "$text" != "$shown" ] || return 0
        shown=$text
        shopt -s checkwinsize
        (:) # sets COLUMNS
        printf '\r%.*s\033[K' "$((${COLUMNS:-80} - 1))" "$program: $text" >&2
    elif [ $((now - told)) -ge $TELL_EVERY_S ]; then
        told=$now
        say "$text"
    fi
}

end_step() {
    read_clock
    say "$step of $steps: $title: done in $((now - begun)) s"
}

# Run a command with its output in $log. The function COUNT gets each line of it, and "" in each second without one.
follow() { # COUNT, command...
    local count=$1 line part=''
    shift
    "$@" </dev/null 2>&1 | while true; do
        if IFS= read -r -t 1 line; then
            printf '%s\n' "$part$line" >>"$log"
            "$count" "$part$line"
            part=''
        elif [ $? -gt 128 ]; then # a second has passed
            part+=$line
            "$count" ''
        else
            break
        fi
    done
}

last_lines() { grep -v '^[dp][lm]status:' "$log" | tail -n 20 >&2 || true; }

# ---- packages -------------------------------------------------------------------------------------------
APT_PATIENCE_S=${APT_PATIENCE_S:-1200}

# apt-get, as often as another process holds a lock that it needs: of the package lists, the archive, or dpkg. apt's own
# DPkg::Lock::Timeout waits for the last one alone.
apt_get() { # COUNT, arguments...
    local count=$1 until holder told_of=''
    shift
    read_clock
    until=$((now + APT_PATIENCE_S))
    while true; do
        : >"$log"
        follow "$count" as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
            ${APT_CONFIG:+"APT_CONFIG=$APT_CONFIG"} apt-get -q -o APT::Status-Fd=1 "$@" && return
        # E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)
        holder=$(sed -n 's/^E: Could not get lock \(.*\)\. It is held by \(process .*\)$/\2, which holds \1/p' "$log")
        [ -n "$holder" ] || return 1
        read_clock
        if [ "$now" -ge "$until" ]; then
            printf '%s still has not ended\n' "$holder" >>"$log"
            return 1
        fi
        [ "$holder" = "$told_of" ] || say "waiting for $holder"
        told_of=$holder
        sleep 1
    done
}

apt_done=0
count_apt() { # dlstatus:3:47.1:Retrieving file 3 of 9, then pmstatus:gcc:12.5:Unpacking gcc
    local percent=${1#*:*:}
    percent=${percent%%[.:]*}
    case $1 in
        dlstatus:*) apt_done=$percent ;;
        pmstatus:*) apt_done=$((100 + percent)) ;;
    esac
    tell_progress "$apt_done" 200
}
count_nothing() { tell_progress 0 0; }

# Install packages of Debian or Ubuntu: one step. The error has apt's last lines and names the cure.
install_packages() { # names...
    command -v apt-get >/dev/null ||
        fail "missing $* and this is not Debian or Ubuntu: install their equivalents, then run this again"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "need root to install $*: run this as root, or install sudo"
        sudo true || fail "sudo does not let this user install $*: ask who administers the machine"
    fi
    say "installing $*"
    begin_step "system packages"
    if [ -n "$(dpkg --audit)" ]; then # an earlier run was interrupted
        : >"$log"
        follow count_nothing as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a || true
    fi
    if ! { apt_get count_nothing update &&
        apt_get count_apt install -y --no-install-recommends "$@"; }; then
        clear_line
        last_lines
        fail "apt-get could not install $* (its last lines are above); is a package source reachable?"
    fi
    end_step
}
