#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <variant>

#include "server/nbd/command_cost.hpp"
#include "server/nbd/connection.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

Connection::Round Connection::round() {
    using Amount = RequestReader::Received::Amount;
    wakeup_.clear();  // this round handles all pending wakeups
    if (quiesced_ != Quiesced::no) [[unlikely]] {
        if (quiesced_ == Quiesced::yes) pause_write();
        flush_all();
        wakeup_.clear();
        if (reading_is_over()) return Round::over;
        if (quiesced_ == Quiesced::yes || half_written_ != nullptr) return Round::blocked;
        take_up_half_write();
    }
    send_queue_.sequencer().resume_entering();
    RoundResult taken = take_requests();
    Amount amount = Amount::none;
    if (taken == RoundResult::hungry) {
        amount = receive();
        if (amount == Amount::none) taken = RoundResult::blocked;
        if (amount == Amount::all || amount == Amount::less) taken = take_requests();
    }
    flush();
    if (!operations_.empty() && std::next(operations_.begin()) == operations_.end()) {
        worker_.scheduler.submit_if_alone();
    }
    if (amount == Amount::end || reading_is_over()) return Round::over;
    switch (taken) {
        case RoundResult::hungry:
            if (amount == Amount::all) {  // there may be more to take
                return turn_left_ <= 0 ? Round::yield : Round::again;
            }
            reader_.release_buffer();
            GPUNBD_ASSERT(reader_.memory() == 0, "an idle connection has no receive buffer");
            admission_.hold_memory(send_queue_.memory() + transport_.release_memory());
            return Round::idle;
        case RoundResult::yield:
            return Round::yield;
        case RoundResult::blocked:
            if (admission_.holding()) reader_.release_empty_buffer();
            admission_.hold_memory(reader_.memory() + send_queue_.memory() + transport_.memory());
            return Round::blocked;
        case RoundResult::over:
            break;
    }
    return Round::over;
}

RequestReader::Received::Amount Connection::receive() {
    const RequestReader::Received got =
        reader_.receive(transport_, static_cast<std::size_t>(worker_.scheduler.transfer_limit()));
    accounting_.received();
    if (got.amount == RequestReader::Received::Amount::end) {
        if (const std::string_view why = transport_.failure(); !why.empty()) {
            close(std::string(why));
        } else if (got.error != 0) {
            close(fmt::format("receiving failed: {}", std::strerror(got.error)));
        }
        if (reason_.empty()) reason_ = "the client hung up";
    }
    progress_.moved(got.bytes);
    turn_left_ -= static_cast<std::int64_t>(std::max(got.bytes, got.work));
    return got.amount;
}

Connection::RoundResult Connection::take_requests() {
    protocol::Request request;
    WriteOperation* write = nullptr;
    accounting_.begin_batch();
    if (admission_.holding() && !reading_is_over() && !take_held()) return RoundResult::blocked;
    while (!reading_is_over()) {
        if (reader_.at_request()) {
            if (send_queue_.full() || !send_queue_.sequencer().takes_requests() ||
                !admission_.may_take()) {
                return RoundResult::blocked;
            }
            if (turn_left_ <= 0) return RoundResult::yield;
        }
        protocol::Validated validated;
        switch (reader_.next(request, write)) {
            case RequestReader::Next::bytes:
                return RoundResult::hungry;
            case RequestReader::Next::request:
                accounting_.taken();
                validated = protocol::validate(request, negotiated_);
                break;
            case RequestReader::Next::status:
                validated =
                    protocol::validate_status(request, reader_.status_payload(), negotiated_);
                break;
            case RequestReader::Next::written:
                payload_complete(*write);
                continue;
            case RequestReader::Next::memory:
                return RoundResult::blocked;
            case RequestReader::Next::invalid:
                hang_up("a request without its magic number");
                continue;
        }
        if (!draining_ && admission_.keeps(validated)) {  // until the rates admit it
            GPUNBD_ASSERT(!std::holds_alternative<protocol::StatusPayload>(validated),
                          "a request is kept only after its payload has been validated");
            accounting_.held_back();
            return RoundResult::blocked;
        }
        execute(request, validated);
    }
    return RoundResult::over;
}

void Connection::payload_complete(WriteOperation& write) {
    accounting_.payload_complete(write, worker_.channels.now());
    write.payload_complete();
}

bool Connection::take_held() {
    GPUNBD_ASSERT(reader_.at_request(), "a request that is kept delays all behind it");
    if (draining_) {
        execute_held(admission_.withdraw());
    } else if (admission_.due()) {
        execute_held(admission_.release());
    } else {
        if (transport_.hung_up()) close("the client hung up");
        return false;
    }
    return true;
}

void Connection::execute(const protocol::Request& request, const protocol::Validated& validated) {
    if (const auto* refusal = std::get_if<protocol::Refusal>(&validated)) return refuse(*refusal);
    if (const auto* payload = std::get_if<protocol::StatusPayload>(&validated)) {
        return reader_.expect_status_payload(request, payload->length);
    }
    if (const auto* end = std::get_if<protocol::Hangup>(&validated)) return hang_up(end->reason);
    const auto& command = std::get<protocol::Command>(validated);
    const CommandCost cost = cost_of(command, page_size_);
    turn_left_ -= cost.turn;
    if (draining_ && command.type != protocol::CommandType::disc) {
        refuse({.type = static_cast<std::uint16_t>(command.type),
                .error = protocol::Error::eshutdown,
                .cookie = command.cookie,
                .offset = command.offset,
                .discard = command.type == protocol::CommandType::write ? command.length : 0,
                .text = "the server is stopping"});
        return;
    }
    switch (command.type) {
        case protocol::CommandType::read:
            start(worker_.operations.reads.take(), command, cost);
            return;
        case protocol::CommandType::write: {
            WriteOperation& write = worker_.operations.writes.take();
            start(write, command, cost);
            reader_.expect_payload_of(write);  // it may be empty
            return;
        }
        case protocol::CommandType::trim:
        case protocol::CommandType::write_zeroes:
            if (command.fast_zero && (command.no_hole || transfer_->volume.cache() != nullptr)) {
                refuse({.type = static_cast<std::uint16_t>(command.type),
                        .error = protocol::Error::enotsup,
                        .cookie = command.cookie,
                        .offset = command.offset,
                        .text = "fast zeroing is not possible with NO_HOLE or an origin"});
                return;
            }
            start(worker_.operations.zeroes.take(), command, cost);
            return;
        case protocol::CommandType::block_status:
            start(worker_.operations.statuses.take(), command, cost);
            return;
        case protocol::CommandType::flush:
            if (transfer_->volume.cache() != nullptr) {
                start(worker_.operations.flushes.take(), command, cost);
                return;
            }
            break;                          // every answered WRITE is in device memory
        case protocol::CommandType::cache:  // a hint; without an origin, all of it is in memory
            if (storage::PageCache* const cache = transfer_->volume.cache()) {
                cache->prefetch(command.offset, command.length);
            }
            break;
        case protocol::CommandType::disc:
            end_of_requests_ = true;
            if (reason_.empty()) reason_ = client_disconnected;
            return;
    }
    add_success(command);
    accounting_.answered_at_once(command);
}

void Connection::execute_held(const protocol::Validated& validated) {
    const auto* const command = std::get_if<protocol::Command>(&validated);
    if (command != nullptr && !lies_in_export(*command)) {
        const bool writes = command->type == protocol::CommandType::write;
        return refuse(protocol::refusal_beyond_end(*command, writes ? command->length : 0));
    }
    execute({}, validated);  // which needs the request only for a StatusPayload
}

void Connection::refuse(const protocol::Refusal& refusal) {
    turn_left_ -= request_work;
    failure_log_.report_refusal(refusal);
    reader_.expect_discarded(refusal.discard);
    accounting_.refused(refusal);
    add_error(refusal);
}

}  // namespace gpunbd::server
