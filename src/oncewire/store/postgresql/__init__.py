"""The store on PostgreSQL: `store` is the door, `connection` connects and migrates, `session` takes
turns and writes, `fellows` is what handlers beside each other know of each other, `reader` opens
views. What they have in common with SQLite is in `store/sql`.

Handlers beside each other
--------------------------

*A turn locks one row*, that of the counters, and whoever has it is alone with the whole store
until its commit. So a decision reads nothing that another handler can change meanwhile, no two
turns can block each other by their rows, one channel's numbers and deliveries keep their order,
and the unique key judges copies as with one handler. `fence` in that row counts commits: where it
is what it was after our last one, what we hold in memory is true; otherwise all of it is forgotten
and read again inside the turn. Numbers are given under the lock, so the journal's `seq` is the
order of commits: a reader that goes by `seq` misses no row, however long a turn stays open, and
there is one hash chain. What handlers gain by each other is that one can end or die, and all that
is done outside of turns: connections, TLS, transmissions, the application's work. The turns
themselves take turns.

*What one handler does and no other may do meanwhile* is a row of `claim`: a transmission under way
(`send`), an answer that leaves (`answer`), a message that the application is called with
(`offer`), a notice that it hears (`notice`), a document that is put together (`join`). So is what
must be known elsewhere: a connection that waits for a response (`reply`), a question whose answer
may reach another handler (`ping`, `ask`). Claims are written by the commit that decides about the
work, before it begins, and what another handler claims is left alone. Everything else that a
handler holds in memory (timers, which partners are silent, templates) is its own, and is found
again from the store.

*A claim holds as long as its handler's lease*, which each handler renews in its turns by the
server's clock (`lease_time`). Before a byte leaves, a handler looks at its own steady clock: from
the moment it asked for its lease that lasts less long than the server's, so it stops transmitting
before it can be taken over. Its work is taken over in a turn that deletes its row, and its claims
with it; its own next turn finds the row gone, changes nothing, and the process ends. Over is a
handler that said so, one whose process is gone from the machine of the one that looks, or one
whose lease has run out while the one that looks could renew its own for a whole lease: a server
that was away takes nobody's work.

*What a commit lets others know* (an outcome, a reply, something ready) goes with it as a
notification. It is a hint: who misses one finds the same in the store within a second.
"""
