#include "server/connection/connection.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <variant>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "protocol/names.hpp"
#include "server/connection/line_limit.hpp"
#include "server/operations/wire_error.hpp"
#include "storage/store.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t max_sent = 512;     // pieces sent at once; IOV_MAX is 1024
constexpr std::size_t max_unsent = 4096;  // answers that wait for a client which goes on asking
constexpr auto report_interval = std::chrono::seconds(1);

// A turn: what a connection does before others get theirs, in bytes of payload or of work that
// takes as long. About 50 us of one core; more where no other connection has had a turn of late.
constexpr std::int64_t turn_budget = 256 * 1024;
constexpr std::int64_t lone_turn_budget = 4 * turn_budget;
constexpr std::int64_t request_work = 2 * 1024;
constexpr std::uint64_t page_work = 8 * 1024;  // to take a page out of the table, or put one in
constexpr std::uint64_t max_work = turn_budget;
// Requests that are timed, of those that come together or while others are under way: reading the
// clock for each costs up to 12% of what a 4 KiB READ does.
constexpr std::uint32_t one_timed_of = 8;
constexpr storage::TraceClock::time_point not_timed{};
constexpr storage::TraceClock::time_point only_looked_at = storage::TraceClock::time_point::max();
// Bytes sent before others get their turn.
constexpr std::size_t max_flush = 1024 * 1024;

// Payload that comes with it is counted where it is received.
std::int64_t work_of(const protocol::Command& command, std::uint64_t page_size) {
    std::uint64_t bytes = 0;
    switch (command.type) {
        case protocol::CommandType::read:
            bytes = command.length;
            break;
        case protocol::CommandType::trim:
        case protocol::CommandType::write_zeroes:
            bytes = command.length / page_size * page_work;
            break;
        case protocol::CommandType::block_status:
            bytes = command.length / page_size * command.contexts.count();
            break;
        default:
            break;
    }
    return request_work + static_cast<std::int64_t>(std::min(bytes, max_work));
}

// Which device it was, as far as can be told: those that have failed for good, or any of the
// volume's.
std::string suspects(const storage::Volume& volume, storage::Status status) {
    std::string all;
    std::string failed;
    for (const storage::Device* device : volume.devices()) {
        const std::string& id = device->info().id;
        all += (all.empty() ? "" : ", ") + id;
        if (device->failed()) failed += (failed.empty() ? "" : ", ") + id;
    }
    return failed.empty() || status == storage::Status::no_space ? all : failed;
}

}  // namespace

Connection::Connection(WorkerContext& worker, Socket socket, std::string peer,
                       std::uint64_t max_in_flight, std::shared_ptr<ConnectionCounters> counters)
    : OperationContext(worker.trace != nullptr ? &worker.trace->sent : nullptr),
      worker_(worker),
      transport_(std::move(socket)),
      peer_(std::move(peer)),
      reader_(worker.receive_buffers),
      admission_(max_in_flight, worker.budget, *this),
      counters_(std::move(counters)) {}

Connection::~Connection() = default;

void Connection::serve(const protocol::NegotiatedOptions& negotiated,
                       std::shared_ptr<const Export> served, std::span<const std::byte> received) {
    negotiated_ = negotiated;
    export_ = std::move(served);
    page_size_ = export_->volume->page_size();
    of_export_ = worker_.counters.of_export(export_->info.name);
    encoder_ = protocol::ReplyEncoder(negotiated_);
    for (storage::Device* device : export_->volume->devices()) worker_.channels.open(*device);
    reader_.begin(negotiated_.headers, received);
}

// --- receiving

void Connection::begin_turn() {
    turn_left_ = worker_.scheduler.begins_lone_turn(*this) ? lone_turn_budget : turn_budget;
}

Connection::Round Connection::round() {
    using Amount = RequestReader::Received::Amount;
    resumed_ = false;  // what it tells of is looked at here
    if (pausing_) [[unlikely]] {
        flush();
        resumed_ = false;  // flush() itself told
        if (reading_is_over()) return Round::over;
        if (!going_on_ || half_written_ != nullptr) return Round::blocked;
        take_up_again();
    }
    Taken taken = take_requests();
    Amount amount = Amount::none;
    if (taken == Taken::hungry) {
        amount = receive();
        if (amount == Amount::none) taken = Taken::blocked;
        if (amount == Amount::all || amount == Amount::less) taken = take_requests();
    }
    flush();
    if (!operations_.empty() && std::next(operations_.begin()) == operations_.end()) {
        worker_.scheduler.submit_if_alone();
    }
    if (amount == Amount::end || reading_is_over()) return Round::over;
    switch (taken) {
        case Taken::hungry:
            if (amount == Amount::all || transport_.pending()) {  // there may be more to take
                return turn_left_ <= 0 ? Round::yield : Round::again;
            }
            reader_.rest();
            transport_.rest();
            admission_.hold_memory(send_queue_.memory() + transport_.memory());
            return Round::idle;
        case Taken::yield:
            return Round::yield;
        case Taken::blocked:
            if (admission_.holding()) reader_.rest_if_empty();
            admission_.hold_memory(reader_.memory() + send_queue_.memory() + transport_.memory());
            return Round::blocked;
        case Taken::over:
            break;
    }
    return Round::over;
}

RequestReader::Received::Amount Connection::receive() {
    const RequestReader::Received got = reader_.receive(transport_);
    received_at_ = storage::TraceClock::now();
    if (got.amount == RequestReader::Received::Amount::end) {
        if (got.error != 0) close(fmt::format("receiving failed: {}", std::strerror(got.error)));
        if (reason_.empty()) reason_ = "the client hung up";
    }
    first_received_ = true;
    moved_ += got.bytes;
    turn_left_ -= static_cast<std::int64_t>(got.bytes);
    return got.amount;
}

Connection::Taken Connection::take_requests() {
    protocol::Request request;
    WriteOperation* write = nullptr;
    untimed_ = export_->activity->is_watched() ? only_looked_at : not_timed;
    if (admission_.holding() && !reading_is_over() && !take_held()) return Taken::blocked;
    while (!reading_is_over()) {
        if (reader_.at_request()) {
            if (!may_take_request()) return Taken::blocked;
            if (turn_left_ <= 0) return Taken::yield;
        }
        switch (reader_.next(request, write)) {
            case RequestReader::Next::bytes:
                return Taken::hungry;
            case RequestReader::Next::request:
                if (!take(request)) return Taken::blocked;
                break;
            case RequestReader::Next::status:
                if (!admit(request, protocol::validate_status(request, reader_.status_payload(),
                                                              negotiated_))) {
                    return Taken::blocked;
                }
                break;
            case RequestReader::Next::written:
                payload_complete(*write);
                break;
            case RequestReader::Next::memory:
                return Taken::blocked;
            case RequestReader::Next::invalid:
                hang_up("a request without its magic number");
                break;
        }
    }
    return Taken::over;
}

bool Connection::may_take_request() {
    return send_queue_.size() <= max_unsent && send_queue_.sequencer().takes_requests() &&
           admission_.may_take();
}

void Connection::payload_complete(WriteOperation& write) {
    if (worker_.trace != nullptr) {
        worker_.trace->payload.record(storage::TraceClock::now() - write.received_at);
    }
    write.payload_complete();
}

bool Connection::take(const protocol::Request& request) {
    ++asked_.requests;
    if (worker_.trace != nullptr) {
        worker_.trace->received.record(storage::TraceClock::now() - received_at_);
    }
    return admit(request, protocol::validate(request, negotiated_));
}

bool Connection::admit(const protocol::Request& request, const protocol::Validated& validated) {
    if (!draining_ && admission_.keeps(validated)) {
        of_export_->held_back.add();
        return false;
    }
    act_on(request, validated);
    return true;
}

bool Connection::take_held() {
    // What is kept is no StatusPayload, which alone would ask for its request.
    if (draining_) {
        act_on({}, admission_.withdraw());
    } else if (admission_.due()) {
        act_on({}, admission_.release());
    } else {
        if (transport_.hung_up()) close("the client hung up");
        return false;
    }
    return true;
}

void Connection::act_on(const protocol::Request& request, const protocol::Validated& validated) {
    if (const auto* command = std::get_if<protocol::Command>(&validated)) {
        execute(*command);
    } else if (const auto* refusal = std::get_if<protocol::Refusal>(&validated)) {
        refuse(*refusal);
    } else if (const auto* payload = std::get_if<protocol::StatusPayload>(&validated)) {
        reader_.expect_status_payload(request, payload->length);
    } else {
        hang_up(std::get<protocol::Hangup>(validated).reason);
    }
}

void Connection::execute(const protocol::Command& command) {
    turn_left_ -= work_of(command, page_size_);
    if (command.type == protocol::CommandType::disc) {
        end_of_requests_ = true;
        if (reason_.empty()) reason_ = "the client disconnected";
        return;
    }
    if (draining_) {
        refuse({.type = static_cast<std::uint16_t>(command.type),
                .error = protocol::Error::eshutdown,
                .cookie = command.cookie,
                .offset = command.offset,
                .discard = command.type == protocol::CommandType::write ? command.length : 0,
                .text = "the server is stopping"});
        return;
    }
    protocol::ReplyHeader header;
    switch (command.type) {
        case protocol::CommandType::read:
            start(worker_.operations.reads.take(), command);
            return;
        case protocol::CommandType::write: {
            WriteOperation& write = worker_.operations.writes.take();
            start(write, command);
            reader_.expect_payload_of(write);  // it may be empty
            return;
        }
        case protocol::CommandType::trim:
        case protocol::CommandType::write_zeroes:
            if (command.fast_zero && command.no_hole) {  // every page would have to be written
                refuse({.type = static_cast<std::uint16_t>(command.type),
                        .error = protocol::Error::enotsup,
                        .cookie = command.cookie,
                        .offset = command.offset,
                        .text = "zeroes that have to be stored are not fast"});
                return;
            }
            start(worker_.operations.zeroes.take(), command);
            return;
        case protocol::CommandType::block_status:
            start(worker_.operations.statuses.take(), command);
            return;
        case protocol::CommandType::flush:    // every answered write is in device memory already
        case protocol::CommandType::cache: {  // and all of it is cache
            add_header(header, encoder_.success(header, command));
            RequestCounters& counters = of_export_->of(command.type);
            counters.begun.add();
            counters.count_answer(command.length);
            counters.latency.record(storage::TraceClock::now() - received_at_);
            return;
        }
        case protocol::CommandType::disc:
            return;
    }
}

void Connection::refuse(const protocol::Refusal& refusal) {
    turn_left_ -= request_work;
    ClientLine(spdlog::level::debug)
        .with("peer", peer_)
        .with("export", negotiated_.export_info.name)
        .with("error", protocol::name_of(refusal.error))
        .say("{}: refused a request: {}: {}", peer_, protocol::name_of(refusal.error),
             refusal.text);
    reader_.expect_discarded(refusal.discard);
    RequestCounters& counters = of_export_->of(refusal.type);
    counters.begun.add();
    counters.count_answer(0);
    counters.failed(refusal.error);
    add_error(refusal);
}

// --- operations

void Connection::start(Operation& operation, const protocol::Command& command) {
    operation.charged = command.type == protocol::CommandType::block_status
                            ? StatusOperation::max_memory(command, page_size_)
                            : sizeof(ReadOperation);
    const bool alone = operations_.empty();
    if (alone) worker_.scheduler.begins_work();
    operations_.push_front(operation);
    admission_.enter(command, page_size_, operation.charged);
    const bool lone = alone && std::exchange(first_received_, false);
    const bool timed = lone || --until_timed_ == 0;
    if (timed) until_timed_ = worker_.trace == nullptr ? one_timed_of : 1;
    operation.received_at = timed ? received_at_ : untimed_;
    operation.answered = false;
    ++tally(command.type).begun;
    operation.start(*this, command);
}

void Connection::finish(Operation& operation) {
    operations_.erase(operations_.iterator_to(operation));
    if (!operation.answered) [[unlikely]]
        abandoned(operation);
    bool may_go_on = admission_.leave(operation.command(), page_size_, operation.charged);
    if (&operation == half_written_) {
        half_written_ = nullptr;
        may_go_on = true;
    }
    operation.return_to(worker_.operations);
    if (operations_.empty()) {
        worker_.scheduler.ends_work();
        if (draining_) transport_.stop_receiving();
    }
    if (may_go_on) resume_receiving();
}

void Connection::abandoned(const Operation& operation) {
    tell_what_was_asked();  // that it has begun
    of_export_->of(operation.command().type).abandoned.add();
    counters_->in_flight.set(--asked_.in_flight);
}

void Connection::answered(Operation& operation) {
    operation.answered = true;
    Tally& its = tally(operation.command().type);
    ++its.answered;
    its.bytes += operation.command().length;
    if (operation.received_at != not_timed) [[unlikely]]
        look_closer(operation);
}

// Apart, so that the many answers that nobody looks at save no registers for it.
[[gnu::noinline]] void Connection::look_closer(const Operation& operation) {
    const protocol::Command& command = operation.command();
    if (operation.received_at != only_looked_at) {
        const auto took = storage::TraceClock::now() - operation.received_at;
        of_export_->of(command.type).latency.record(took);
        if (worker_.trace != nullptr) worker_.trace->answered(command.type, took);
    }
    if (command.type == protocol::CommandType::read) {
        export_->activity->read(command.offset, command.length);
    } else if (command.type != protocol::CommandType::block_status) {
        export_->activity->written(command.offset, command.length);
    }
}

void Connection::report_failure(const Operation& operation, storage::Status status) {
    of_export_->of(operation.command().type).failed(wire_error(status));
    const Clock::time_point now = Clock::now();
    if (last_report_ != Clock::time_point{} && now - last_report_ < report_interval) {
        ++unreported_;
        return;
    }
    const protocol::Command& command = operation.command();
    const std::string_view request = protocol::name_of(command.type);
    const std::string_view error = protocol::name_of(wire_error(status));
    const std::string devices = suspects(*export_->volume, status);
    ClientLine(spdlog::level::warn)
        .with("peer", peer_)
        .with("export", negotiated_.export_info.name)
        .with("request", request)
        .with("offset", command.offset)
        .with("length", command.length)
        .with("error", error)
        .with("device", devices)
        .with("unreported", unreported_)
        .say(
            "{}: export {}: {} of {} at offset {} failed: {}: {} {}{}", peer_,
            config::in_quotes(negotiated_.export_info.name), request,
            config::human_size(command.length), command.offset, error,
            status == storage::Status::no_space ? "no space left on" : "an error of", devices,
            unreported_ == 0 ? "" : fmt::format(" (and {} more since the last line)", unreported_));
    last_report_ = now;
    unreported_ = 0;
}

void Connection::resume_receiving() noexcept {
    resumed_ = true;
    if (waiter_) worker_.scheduler.run_soon(*this);
}

Connection::Resumption Connection::ready(Transport::Wait direction) {
    if (!waiting_to_be_ready_) {
        auto told = [weak = weak_from_this()](boost::system::error_code) {
            const auto self = weak.lock();
            if (!self) return;
            self->waiting_to_be_ready_ = false;
            self->resumed_ = true;
            if (self->waiter_) self->wake();
        };
        transport_.wait(direction, within(memory_to_be_ready_, std::move(told)));
        waiting_to_be_ready_ = true;
    }
    return resumed();
}

Connection::Resumption Connection::next_turn() {
    resumed_ = true;
    worker_.scheduler.run_in_turn(*this);
    return {*this, false};
}

Connection::Resumption Connection::long_turn() {
    resumed_ = true;
    worker_.scheduler.run_once_a_round(*this);
    return {*this, false};
}

void Connection::run() noexcept {
    flush_or_close();
    Scheduler::Runnable::unlink();  // what this has told is looked at here
    if (resumed_ && waiter_) wake();
}

void Connection::wake() noexcept {
    const auto self = shared_from_this();
    std::exchange(waiter_, {}).resume();
}

void Connection::hang_up(const char* reason) {
    hang_up_ = reason;
    end_of_requests_ = true;
}

void Connection::run_out_of_memory() noexcept {
    out_of_memory_ = true;
    flush_soon();
}

// --- sending

void Connection::tell_what_was_asked() {
    for (std::size_t type = 0; type != tallies_.size(); ++type) {
        Tally& each = tallies_[type];
        if (each.begun == 0 && each.answered == 0) continue;
        RequestCounters& counters = of_export_->by_type[type];
        counters.begun.add(each.begun);
        counters.answered.add(each.answered);
        counters.bytes.add(each.bytes);
        asked_.in_flight += each.begun - each.answered;
        const auto command = static_cast<protocol::CommandType>(type);
        if (command == protocol::CommandType::read) asked_.read += each.bytes;
        if (command == protocol::CommandType::write) asked_.written += each.bytes;
        each = {};
    }
    counters_->requests.set(asked_.requests);
    counters_->in_flight.set(asked_.in_flight);
    counters_->read.set(asked_.read);
    counters_->written.set(asked_.written);
}

void Connection::flush() {
    tell_what_was_asked();  // who has an answer finds that it was counted
    if (out_of_memory_) close(no_memory);
    if (closed_) return;
    if (!waiting_to_send_ && !send_queue_.nothing_to_send()) {
        // An answer tells that the payload of its write is where everybody sees it.
        storage::store_fence();
        std::array<iovec, max_sent> pieces;
        const bool was_full = send_queue_.size() > max_unsent;
        for (std::size_t flushed = 0; !send_queue_.nothing_to_send();) {
            const Transport::Result done =
                transport_.send({pieces.data(), send_queue_.gather(pieces)});
            if (done.ended) {
                close(done.error == EPIPE || done.error == ECONNRESET
                          ? "the client hung up"
                          : fmt::format("sending failed: {}", std::strerror(done.error)));
                return;
            }
            moved_ += done.bytes;
            flushed += done.bytes;
            send_queue_.sent(done.bytes);
            if (done.wait != Transport::Wait::none || flushed >= max_flush) {
                wait_to_send();
                break;
            }
        }
        if (was_full && send_queue_.size() <= max_unsent) resume_receiving();
        if (asked_.requests - requests_at_flush_ == 1 && operations_.empty() &&
            !admission_.holding()) {
            worker_.scheduler.expect_next_soon();
        }
        requests_at_flush_ = asked_.requests;
        if (send_queue_.empty()) send_queue_.give_memory_back();
    }
    if (hang_up_ != nullptr) close(hang_up_);
    if (end_of_requests_ || going_on_) resume_receiving();
}

// Called where an exception would end the worker.
void Connection::flush_or_close() noexcept {
    try {
        flush();
    } catch (const std::exception&) {
        close(no_memory);
    }
}

void Connection::wait_to_send() {
    auto told = [weak = weak_from_this()](boost::system::error_code error) {
        const auto self = weak.lock();
        if (!self) return;
        self->waiting_to_send_ = false;
        if (!error) self->flush_or_close();
    };
    transport_.wait(Transport::Wait::writable, within(memory_to_send_, std::move(told)));
    waiting_to_send_ = true;
}

// --- pausing

void Connection::pause() {
    going_on_ = false;
    if (pausing_ || reading_is_over()) return;
    if (admission_.holding()) act_on({}, admission_.withdraw());
    pausing_ = true;
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
            write->cut_short();
        }
    }
    resume_receiving();  // the round sends what there is
}

// An error may come before the rest of the payload, which is thrown away then.
void Connection::lose_half_write() {
    reader_.expect_discarded(half_write_.length - half_write_.arrived);
    half_write_ = {};
}

void Connection::go_on() {
    going_on_ = pausing_;
    resume_receiving();
}

// What had come of half a write is in its place by now, or it has been lost.
void Connection::take_up_again() {
    pausing_ = going_on_ = false;
    if (half_write_.length == 0) return;
    const auto half = std::exchange(half_write_, {});
    WriteOperation& write = worker_.operations.writes.take();
    write.continues_behind(half.arrived);
    start(write, {.type = protocol::CommandType::write,
                  .cookie = half.cookie,
                  .offset = half.offset,
                  .length = half.length});
    write.continues_behind(0);  // its rest is missing: it has not finished
    reader_.expect_payload_of(write);
}

void Connection::describe(ConnectionState& state) const {
    storage::store_fence();  // the half of a write that nobody has acknowledged
    RequestReader::Unread unread = reader_.unread();
    state.negotiated = negotiated_;
    state.half_write = half_write_;
    state.discarded = unread.discarded;
    state.received = std::move(unread.bytes);
    state.requests = asked_.requests;
    state.read = asked_.read;
    state.written = asked_.written;
}

void Connection::continue_from(const ConnectionState& state) {
    asked_ = {.requests = state.requests, .read = state.read, .written = state.written};
    tell_what_was_asked();
    requests_at_flush_ = state.requests;
    reader_.expect_discarded(state.discarded);
    half_write_ = state.half_write;
    pausing_ = going_on_ = true;
}

void Connection::leave() noexcept {
    closed_ = true;
    transport_.leave();
    resume_receiving();
}

// --- ending

void Connection::drain() {
    draining_ = true;
    pausing_ = going_on_ = false;
    reason_ = "the server is stopping";
    if (export_->contents_outlive_server()) {
        // Its client comes back, and asks again what has not been answered. An error it would take
        // for the last word.
        if (admission_.holding()) admission_.withdraw();
        stop_taking();
    }
    if (admission_.holding()) resume_receiving();
    if (operations_.empty()) transport_.stop_receiving();
}

void Connection::stop_taking() {
    end_of_requests_ = true;
    if (WriteOperation* const broken = reader_.stop_writing(); broken != nullptr) {
        broken->abandon();  // the rest of its payload will never come
    }
}

bool Connection::settle() {
    flush();
    resumed_ = false;  // flush() itself told
    return closed_ || (operations_.empty() && send_queue_.empty());
}

void Connection::close(std::string reason) noexcept {
    if (closed_) return;
    closed_ = true;
    reason_ = std::move(reason);
    tell_what_was_asked();
    if (admission_.holding()) admission_.withdraw();
    reader_.stop_writing();
    send_queue_.clear();
    transport_.close();
    for (auto next = operations_.begin(); next != operations_.end();) (next++)->abandon();
    resume_receiving();
}

std::uint32_t Connection::looks_without_progress(std::uint64_t min_progress) {
    const bool progress = moved_ - std::exchange(moved_at_look_, moved_) >= min_progress;
    looks_without_progress_ = progress ? 0 : looks_without_progress_ + 1;
    return looks_without_progress_;
}

}  // namespace gpunbd::server
