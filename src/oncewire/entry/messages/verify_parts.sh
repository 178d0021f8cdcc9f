#!/bin/sh
# Checks the evidence of a document that was sent in parts: each part by its own verify.sh, then
# that they are all the parts of one document, and that they join to what was announced. It needs
# openssl, xmlsec1 and xmllint, and is the same in every evidence of that kind.
set -eu
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")"

refuse() {
    echo "REFUSED: $*" >&2
    exit 1
}

# value PART XPATH: a string or a number of what is signed of that part.
value() {
    xmllint --nonet --xpath "$2" "part-$1/message.c14n" || refuse "part $1 cannot be read"
}

# joined: the parts gathered in `list` are, one after the other, what has the announced digest.
joined() {
    [ -n "$digest" ] || return 0
    # The names hold no spaces: they are part-NUMBER/payload-1.
    made=$(cat $list | openssl dgst -sha256 -r | cut -d ' ' -f 1)
    [ "$made" = "$digest" ] || refuse "the parts do not join to the document $digest"
    echo "These join to the document with the SHA-256 $digest: $list"
}

SPLIT_ID="//*[local-name()='SplitId']"
SPLIT_NUMBER="//*[local-name()='SplitNumber']"
STRETCH="//*[local-name()='Stretch']"
at=1 list="" digest=""
[ -d part-1 ] || refuse "part 1 is not here"
document=$(value 1 "normalize-space($SPLIT_ID)")
total=$(value 1 "string($SPLIT_NUMBER/@Total)")
case $total in '' | *[!0-9]*) refuse "part 1 does not say how many parts there are" ;; esac
while [ "$at" -le "$total" ]; do
    [ -d "part-$at" ] || refuse "part $at of $total is not here"
    cmp -s part-1/verify.sh "part-$at/verify.sh" || refuse "part $at has another verify.sh"
    status=0
    sh "part-$at/verify.sh" || status=$?
    [ "$status" = 0 ] || exit "$status"
    for name in "$SPLIT_ID" "$SPLIT_NUMBER"; do
        [ "$(value "$at" "count($name)")" = 1 ] || refuse "part $at is not one part"
    done
    [ "$(value "$at" "normalize-space($SPLIT_ID)")" = "$document" ] \
        || refuse "part $at is of another document"
    [ "$(value "$at" "normalize-space($SPLIT_NUMBER)")" = "$at" ] \
        || refuse "part $at has another number"
    [ "$(value "$at" "string($SPLIT_NUMBER/@Total)")" = "$total" ] \
        || refuse "part $at is of another number of parts"
    next=$(value "$at" "string($STRETCH/@digest)")
    if [ "$next" != "$digest" ]; then
        joined
        list="" digest=$next
    fi
    list="$list part-$at/payload-1"
    at=$((at + 1))
done
joined
echo "PROVED: the owner of receiver.pem signed for each of the $total parts of $document."
