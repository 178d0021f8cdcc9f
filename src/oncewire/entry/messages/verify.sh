#!/bin/sh
# Checks the evidence beside it with openssl, xmlsec1 and xmllint, and nothing of Oncewire.
# It is the same in every evidence. Whoever gave you the evidence gave you this file too: read it,
# or take it from Oncewire itself, before you believe what it says.
#
# A .c14n file holds the octets that a signature covers. It is believed because its digest is the
# signed one, and everything that is compared is read from there: comments, and whatever else in
# an .xml file nobody signed, count for nothing.
set -eu
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")"

DS="http://www.w3.org/2000/09/xmldsig#"
SIGNATURE="//*[local-name()='Signature' and namespace-uri()='$DS']"
SIGNED_INFO="//*[local-name()='SignedInfo' and namespace-uri()='$DS']"
REFERENCE="*[local-name()='Reference' and namespace-uri()='$DS']"
DATA="/*/*[local-name()='Header']//*[local-name()='MessageData']"
ACK="//*[local-name()='Acknowledgment' or local-name()='Acknowledgement']"
FROM="//*[local-name()='From']/*[local-name()='PartyId']"
TO="//*[local-name()='To']/*[local-name()='PartyId']"
# A child of the SOAP Header; the drafts have it in their own root.
TOP="[parent::*[local-name()='Header']/parent::*[not(parent::*)] or parent::*[local-name()='ebXMLHeader'][not(parent::*)]]"

refuse() {
    echo "REFUSED: $*" >&2
    exit 1
}

# value FILE XPATH: a string or a number.
value() {
    xmllint --nonet --xpath "$2" "$1"
}

# stands FILE XPATH NUMBER: stands there so many times, or it is refused.
stands() {
    found=$(value "$1" "count($2)") || refuse "$1 cannot be read"
    [ "$found" = "$3" ] || refuse "$1 has $found times what it must have $3 times: $2"
}

# plain FILE: what the tools below must not read in two ways is refused, DOCTYPE above all.
plain() {
    [ "$(tr -d '\000' < "$1" | wc -c)" -eq "$(wc -c < "$1")" ] || refuse "$1 is not plain text"
    if tr '\r\n\t' '   ' < "$1" | grep -qia '<!DOCTYPE'; then refuse "$1 has a DOCTYPE"; fi
    first=$(tr '\r\n\t' '   ' < "$1" | tr -d '\357\273\277' | cut -d '>' -f 1)
    case $first in
        '<?xml '*encoding*)
            echo "$first" | grep -qiE \
                "encoding *= *[\"'](utf-8|us-ascii|iso-8859-[0-9]+|windows-125[0-9])[\"']" \
                || refuse "$1 has an unusual encoding" ;;
        '<'*) ;;
        *) refuse "$1 does not begin as XML does" ;;
    esac
}

# same_digest FILE XPATH DATA: the ds:Reference found there has the digest of the file DATA.
same_digest() {
    stands "$1" "$2/*[local-name()='DigestMethod' and namespace-uri()='$DS']" 1
    stands "$1" "$2/*[local-name()='DigestValue' and namespace-uri()='$DS']" 1
    method=$(value "$1" "string($2/*[local-name()='DigestMethod']/@Algorithm)")
    case $method in
        http://www.w3.org/2000/09/xmldsig#sha1)
            hash=sha1
            echo "WEAK: $3 is known by a SHA-1 digest alone" ;;
        http://www.w3.org/2001/04/xmlenc#sha256) hash=sha256 ;;
        http://www.w3.org/2001/04/xmldsig-more#sha384) hash=sha384 ;;
        http://www.w3.org/2001/04/xmlenc#sha512) hash=sha512 ;;
        *) refuse "$1 has an unknown digest algorithm $method" ;;
    esac
    [ -f "$3" ] || refuse "there is no file $3: if it travelled encrypted, put the document there"
    said=$(value "$1" "string($2/*[local-name()='DigestValue'])" | tr -d ' \t\r\n')
    made=$(openssl dgst "-$hash" -binary "$3" | openssl base64 -A)
    [ -n "$made" ] && [ "$said" = "$made" ] || refuse "$3 has not the digest that $1 says it has"
}

# signed NAME CERTIFICATE DOCUMENTS: NAME.xml has one signature, of that certificate's key, over
# NAME.c14n and over DOCUMENTS-1, DOCUMENTS-2 and so on; `covers` is how many documents.
signed() {
    name=$1 certificate=$2 documents=$3
    plain "$name.xml"
    stands "$name.xml" "$SIGNATURE" 1
    stands "$name.xml" "$SIGNED_INFO" 1
    stands "$name.xml" "$SIGNATURE/*[local-name()='SignedInfo' and namespace-uri()='$DS']" 1
    total=$(value "$name.xml" "count($SIGNED_INFO/$REFERENCE)")
    covers=0 whole=0 at=1
    set --
    while [ "$at" -le "$total" ]; do
        each="($SIGNED_INFO/$REFERENCE)[$at]"
        uri=$(value "$name.xml" "string($each/@URI)")
        if [ -z "$uri" ]; then
            whole=$((whole + 1))
            same_digest "$name.xml" "$each" "$name.c14n"
        else
            covers=$((covers + 1))
            stands "$name.xml" "$each/*[local-name()='Transforms']" 0
            same_digest "$name.xml" "$each" "$documents-$covers"
            set -- "$@" "--url-map:$uri" "$documents-$covers"
        fi
        at=$((at + 1))
    done
    [ "$whole" = 1 ] || refuse "the signature of $name.xml covers its envelope $whole times"
    # From 1.3 on xmlsec1 wants to be told that the key has no name.
    if xmlsec1 --help-verify 2>/dev/null | grep -q -e --lax-key-search; then
        set -- --lax-key-search "$@"
    fi
    if [ ! -f "$certificate" ]; then
        echo "The $name is signed, but nothing here says by whom."
        return
    fi
    xmlsec1 --verify --enabled-key-data key-name --pubkey-cert-pem "$certificate" "$@" \
        "$name.xml" > /dev/null 2>&1 \
        || refuse "the signature of $name.xml is not good by the key of $certificate"
    openssl x509 -noout -subject -dates -fingerprint -sha256 -in "$certificate"
    echo "The $name is signed by the key of this certificate, $certificate."
}

# place URI: which of the message's documents is meant; in an unsigned message, the next one.
place() {
    if [ "$by_sender" = 0 ]; then
        found=$((acknowledged + 1))
        return
    fi
    found=1
    while [ "$found" -le "$sent" ]; do
        other=$(value message.xml "string(($SIGNED_INFO/$REFERENCE[@URI!=''])[$found]/@URI)")
        if [ "$other" = "$1" ]; then return; fi
        found=$((found + 1))
    done
    refuse "the acknowledgement names $1, which is no document of the message"
}

# --- nothing was changed since it was packed -----------------------------------------------------

while read -r sum name; do
    [ "$(openssl dgst -sha256 -r "$name" | cut -d ' ' -f 1)" = "$sum" ] \
        || refuse "$name is not the file that was packed"
done < SHA256SUMS

# --- the message ---------------------------------------------------------------------------------

plain message.xml
by_sender=$(value message.xml "count($SIGNATURE)") || refuse "message.xml cannot be read"
if [ "$by_sender" = 0 ]; then
    echo "The message is not signed by its sender."
    sent=$(value message.c14n "count(//*[local-name()='Manifest']/*[local-name()='Reference'][starts-with(@*[local-name()='href'], 'cid:')])")
else
    signed message sender.pem payload
    sent=$covers
fi
stands message.c14n "$DATA/*[local-name()='MessageId']" 1
message_id=$(value message.c14n "normalize-space($DATA/*[local-name()='MessageId'])")

# --- the acknowledgement -------------------------------------------------------------------------

if [ ! -f acknowledgement.xml ]; then
    echo "NOT PROVED: there is no signed acknowledgement of $message_id." >&2
    exit 2
fi
plain acknowledgement.xml
signer=receiver.pem
if [ ! -f "$signer" ] && [ -f hub.pem ]; then signer=hub.pem; fi
if [ "$(value acknowledgement.xml "count($SIGNATURE)")" = 0 ] || [ ! -f "$signer" ]; then
    echo "NOT PROVED: nobody is known to have signed the acknowledgement of $message_id." >&2
    exit 2
fi
signed acknowledgement "$signer" acknowledgement-payload
if [ "$(value acknowledgement.c14n "count($ACK)")" = 0 ]; then
    # One for the next hop is in no signature: anybody on the way can put it in.
    echo "NOT PROVED: the signature covers no acknowledgement of $message_id." >&2
    exit 2
fi
stands acknowledgement.c14n "$ACK" 1
stands acknowledgement.c14n "$ACK$TOP" 1
meant="$ACK/*[local-name()='RefToMessageId']"
if [ "$(value acknowledgement.c14n "count($meant)")" = 0 ]; then
    meant="$DATA/*[local-name()='RefToMessageId']"
fi
stands acknowledgement.c14n "$meant" 1
meant_id=$(value acknowledgement.c14n "normalize-space($meant)")
[ -n "$message_id" ] && [ "$meant_id" = "$message_id" ] \
    || refuse "the acknowledgement is of $meant_id, not of $message_id"

total=$(value acknowledgement.c14n "count($ACK/$REFERENCE)")
acknowledged=0 whole=0 at=1 seen=" "
while [ "$at" -le "$total" ]; do
    each="($ACK/$REFERENCE)[$at]"
    uri=$(value acknowledgement.c14n "string($each/@URI)")
    if [ -z "$uri" ]; then
        whole=$((whole + 1))
        same_digest acknowledgement.c14n "$each" message.c14n
    else
        place "$uri"
        case $seen in *" $found "*) refuse "the acknowledgement names $uri twice" ;; esac
        seen="$seen$found " number=$found
        same_digest acknowledgement.c14n "$each" "payload-$number"
        acknowledged=$((acknowledged + 1))
        echo "payload-$number is $uri, and the acknowledgement has its digest."
    fi
    at=$((at + 1))
done
[ "$whole" = 1 ] || refuse "the acknowledgement has the envelope's digest $whole times, not once"
[ "$acknowledged" = "$sent" ] \
    || refuse "the acknowledgement names $acknowledged documents of the message's $sent"

echo "The message is to:        $(value message.c14n "normalize-space(($TO)[1])")"
echo "The acknowledgement is of: $(value acknowledgement.c14n "normalize-space(($FROM)[1])")"
if [ "$signer" = hub.pem ]; then
    echo "NOT PROVED: the owner of hub.pem, a hub on the way, signed that it took over the message $message_id; its receiver did not sign for it." >&2
    exit 3
fi
echo "PROVED: the owner of receiver.pem signed for the message $message_id and its documents."
echo "What was signed for stands in message.c14n and in the payload files, and nowhere else."
