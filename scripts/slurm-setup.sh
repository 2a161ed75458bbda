#!/usr/bin/env bash
# Starts Slurm on this machine, with two nodes n1 and n2 of one core each, and installs it where it is missing (Debian).
#
# usage: slurm-setup.sh start | stop | kill NODE | start NODE
#
# `kill` ends all that runs on a node, as a crash would, `start NODE` starts its daemon again. Needs root. Only for tests: it replaces
# /etc/slurm/slurm.conf.
set -euo pipefail

install() {
    command -v slurmctld > /dev/null && command -v munged > /dev/null && return
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends slurm-wlm munge
}

configure() {
    local host
    host=$(hostname -s)
    grep -qw "$host" /etc/hosts || echo "127.0.0.1 $host" >> /etc/hosts
    mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd-n1 /var/spool/slurmd-n2 /var/log/slurm
    cat > /etc/slurm/slurm.conf <<END
ClusterName=here
SlurmctldHost=$host
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# A node that is gone is noticed soon, and its jobs are put back into the queue.
SlurmdTimeout=10
KillWait=5
ReturnToService=2
JobRequeue=1
OverTimeLimit=0
NodeName=n1 NodeHostname=$host Port=17001 CPUs=1
NodeName=n2 NodeHostname=$host Port=17002 CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
    echo CgroupAutomount=no > /etc/slurm/cgroup.conf
}

start_node() {
    slurmd -N "$1"
}

case "${1:-}" in
start)
    if [ -n "${2:-}" ]; then
        start_node "$2"
        exit
    fi
    install
    configure
    if ! pgrep -x munged > /dev/null; then
        mkdir -p /run/munge
        chown munge: /run/munge
        runuser -u munge -- munged
    fi
    pgrep -x slurmctld > /dev/null || slurmctld
    pgrep -f "slurmd -N n1" > /dev/null || start_node n1
    pgrep -f "slurmd -N n2" > /dev/null || start_node n2
    for _ in $(seq 60); do
        [ "$(sinfo --noheader --Node --format=%t 2> /dev/null | grep -c '^idle$')" = 2 ] && exec sinfo
        sleep 1
    done
    sinfo
    echo "slurm-setup: the nodes are not idle after a minute; see /var/log/slurm" >&2
    exit 1
    ;;
kill)
    # The daemon, and all that runs on its node.
    pkill -KILL -f "slurmd -N $2"
    for process in $(grep -lszx "SLURMD_NODENAME=$2" /proc/[0-9]*/environ | cut -d/ -f3); do
        parent=$(ps -o ppid= -p "$process" | tr -d ' ') || continue
        [ "$(ps -o comm= -p "${parent:-1}")" != slurmstepd ] || kill -KILL "$parent" || true
        kill -KILL "$process" || true
    done
    ;;
stop)
    pkill -x slurmd || true
    pkill -x slurmctld || true
    ;;
*)
    sed -n '2,7s/^# \?//p' "$0"
    exit 2
    ;;
esac
