#!/usr/bin/env bash
# What bash and coreutils can find out where there is no Python for worker.py; the same answer, with fewer members.
# Nothing here can look at packets, so a connection that gets no answer is known as that alone.

quote() { # as a JSON string
  printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\010\013\014\016-\037' | tr '\n\t\r' '   ' | sed 's/[\\"]/\\&/g')"
}

listed() { # the words of $1 as a JSON array of strings
  local word items=()
  for word in $1; do items+=("$(quote "$word")"); done
  (IFS=,; printf '[%s]' "${items[*]}")
}

try() { # host, port: what came of connecting, as connections of probe_connections.meet
  local said status outcome=timeout
  said=$(timeout 4 bash -c "exec 3<>/dev/tcp/$1/$2" 2>&1)
  status=$?
  case $status:$said in
    0:*) outcome=open ;;
    124:*) outcome=timeout ;;
    *refused* | *reset*) outcome=refused ;;
    *resolve* | *known* | *hostname*) outcome=unresolvable ;;
    *timed*) outcome=timeout ;;
    *) outcome=unreachable ;;
  esac
  printf '{"host":%s,"port":%s,"outcome":"%s","attempts":1,"left":null}' "$(quote "$1")" "$2" "$outcome"
}

insist() { # the same again until it is open or refused, or the time is over
  local end=$((SECONDS + ${DOCTOR_SECONDS%.*})) found
  while found=$(try "$1" "$2"); [[ $found == *timeout* || $found == *unreachable* ]] && ((SECONDS < end)); do sleep 1; done
  printf '%s\n' "$found"
}

room() { # path: as an item of host_facts.disks
  local block blocks free inodes inodes_free
  read -r block blocks free inodes inodes_free < <(timeout 4 stat -f -c '%S %b %a %c %d' "$1") || return
  printf '{"path":%s,"mount":%s,"available":%s,"size":%s,"inodes_free":%s,"inodes":%s}\n' "$(quote "$1")" \
    "$(quote "$(df -P "$1" | awk 'END { print $6 }')")" \
    $((free * block)) $((blocks * block)) "$inodes_free" "$inodes"
}

together() { # lines of standard input as the items of a JSON array
  printf '[%s]' "$(paste -sd, -)"
}

names() {
  local name addresses items=()
  for name in $DOCTOR_RESOLVE; do
    addresses=$(timeout 8 getent ahostsv4 "$name" | awk '{ print $1 }' | sort -u)
    items+=("$(quote "$name"):{\"addresses\":$(listed "$addresses"),\"problem\":\"no such name\"}")
  done
  (IFS=,; printf '{%s}' "${items[*]}")
}

credential() {
  local said decoded=false
  said=$(printf '%s' "$DOCTOR_CREDENTIAL" | timeout 8 unmunge --numeric 2>&1) && decoded=true
  printf '{"decoded":%s,"status":%s,"age":null}' "$decoded" \
    "$(quote "$(printf '%s\n' "$said" | sed -n 's/^STATUS: *//p; s/^unmunge: //p' | head -n 1)")"
}

answer() {
  local meeting address disks
  meeting=$(for to in $DOCTOR_CONNECT; do insist "${to%:*}" "${to##*:}" & done | together; wait)
  address=$(ip -4 route get "$DOCTOR_HEAD" 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
  disks=$(for path in "${DOCTOR_SPOOL:-/var/spool/slurmd}" /tmp /var/log; do [[ -e $path ]] && room "$path"; done | together)
  printf '{"facts":{"hostname":%s,"address":%s,"release":%s,"disks":%s,"time":%s},' \
    "$(quote "$(uname -n)")" "$(quote "$address")" "$(quote "$(slurmd -V 2>&1)")" "$disks" "$(date +%s)"
  printf '"meet":{"meeting":{"listening":[],"taken":[],"watching":false,"accepted":[],"arrived":[],"connections":%s},' \
    "$meeting"
  printf '"names":%s%s}}' "$(names)" "${DOCTOR_CREDENTIAL:+,\"credential\":$(credential)}"
}

hand_over() { # the answer over a connection of its own, as worker.hand_over
  local text=$1 said=
  [[ ${DOCTOR_RETURN-} ]] || return 1
  # in a shell of its own, that can be ended if nothing comes back
  # shellcheck disable=SC2016 # that shell expands them
  said=$(printf '%s %s %s\n%s' "$DOCTOR_TOKEN" "$DOCTOR_NODE" "${#text}" "$text" |
    timeout 6 bash -c 'exec 3<>"/dev/tcp/$1/$2" && cat >&3 && read -r line <&3 && printf %s "$line"' hand \
      "${DOCTOR_RETURN%:*}" "${DOCTOR_RETURN##*:}" 2>/dev/null)
  [[ $said == taken ]]
}

send() { # the answer, piece by piece, as worker.send
  local text=$1 length=960 count number end
  count=$(((${#text} + length - 1) / length))
  for ((number = 1; number <= count; number++)); do
    scontrol update JobId="$SLURM_JOB_ID" \
      Comment="slurm-doctor:$number/$count:${text:(number - 1) * length:length}" >/dev/null 2>&1 || return 42
    end=$((SECONDS + 20))
    until scontrol --oneliner show job "$SLURM_JOB_ID" 2>/dev/null | grep -q ' Comment=slurm-doctor:taken\b'; do
      ((SECONDS < end)) || return 42
      sleep 0.3
    done
  done
}

if [[ -z ${DOCTOR_JOB-} ]]; then
  answer
else
  found=$(answer)
  hand_over "$found" && exit
  command -v scontrol >/dev/null || exit 41
  send "$(printf '%s' "$found" | gzip -9 | base64 -w 0)"
fi
