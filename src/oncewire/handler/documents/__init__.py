"""The life of a document that is too large for one message.

At its sender it is a stored message like any other, with its id, its outcome and its notice; only
that it never travels itself. `splitting` makes it, `parts` sends its parts as the window opens,
`outcome` follows how they end; `fragments` is how NHS Spine has them. At its receiver `gathering`
takes the parts, or `claims` what another message names, and `joining` puts the document together.
Parts are ordinary messages: they are numbered, resent and acknowledged as such.
"""
