#include <utility>

#include "server/nbd/connection.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::server {

void Connection::quiesce() {
    if (quiesced_ != Quiesced::no) {
        quiesced_ = Quiesced::yes;
        return;
    }
    if (reading_is_over()) return;
    GPUNBD_ASSERT(half_written_ == nullptr && half_write_.length == 0,
                  "the WRITE of an earlier pause goes on before the next pause");
    if (admission_.holding()) execute_held(admission_.withdraw());
    quiesced_ = Quiesced::yes;
    if (WriteOperation* const write = reader_.stop_writing(); write != nullptr) {
        if (write->missing() == 0) {
            payload_complete(*write);
        } else {
            const protocol::Command& command = write->command();
            half_write_ = {.cookie = command.cookie,
                           .offset = command.offset,
                           .length = command.length,
                           .arrived = command.length - write->missing()};
            half_written_ = write;
            write->hand_over();
        }
    }
    wakeup_.resume();  // the next round sends what is queued
}

void Connection::resume() {
    if (quiesced_ == Quiesced::yes) quiesced_ = Quiesced::resuming;
    wakeup_.resume();
}

void Connection::take_up_half_write() {
    GPUNBD_ASSERT(half_written_ == nullptr, "the part that had arrived is written before the rest");
    quiesced_ = Quiesced::no;
    if (half_write_.length == 0) return;
    const auto half = std::exchange(half_write_, {});
    const protocol::Command command{.type = protocol::CommandType::write,
                                    .cookie = half.cookie,
                                    .offset = half.offset,
                                    .length = half.length};
    if (!lies_in_export(command)) {
        return refuse(protocol::refusal_beyond_end(command, half.length - half.arrived));
    }
    WriteOperation& write = worker_.operations.writes.take();
    write.skip(half.arrived);
    start(write, command, cost_of(command, page_size_));
    GPUNBD_ASSERT(write.missing() != 0, "a WRITE does not end before the rest of its payload");
    write.skip(0);
    reader_.expect_payload_of(write);
}

void Connection::describe(ConnectionState& state) const {
    GPUNBD_ASSERT(quiesced_ == Quiesced::yes && quiet(),
                  "a connection is described while it is quiet");
    storage::store_fence();  // for the part of a WRITE that has not been acknowledged
    RequestReader::Unread unread = reader_.unread();
    state.negotiated = negotiated_;
    state.half_write = half_write_;
    state.discarded = unread.discarded;
    state.received = std::move(unread.bytes);
    accounting_.describe(state);
}

void Connection::continue_from(const ConnectionState& state) {
    GPUNBD_ASSERT(export_ != nullptr && operations_.empty(),
                  "a connection is continued before its first request here");
    accounting_.continue_from(state);
    requests_at_flush_ = state.requests;
    reader_.expect_discarded(state.discarded);
    half_write_ = state.half_write;
    quiesced_ = Quiesced::resuming;
}

void Connection::leave() noexcept {
    GPUNBD_ASSERT(operations_.empty() && send_queue_.empty(),
                  "nothing of a client is in flight when another process continues");
    closed_ = true;
    transport_.leave();
    wakeup_.resume();
}

}  // namespace gpunbd::server
