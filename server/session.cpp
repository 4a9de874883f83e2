#include "server/session.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "protocol/names.hpp"
#include "server/wire_error.hpp"
#include "storage/log_line.hpp"
#include "storage/store.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);

// Payload of large writes is received straight into lent memory; behind it, room for the next
// header and only a little of the payload that follows it, which would be copied twice.
constexpr std::uint32_t large_write = 16 * 1024;  // bytes
constexpr std::size_t small_gulp = 4 * 1024;      // bytes
constexpr std::size_t most_lent = 8;              // pieces of a write received into at once
constexpr std::size_t most_sent = 512;            // pieces sent at once; IOV_MAX is 1024
constexpr int rounds_per_turn = 8;                // gulps before other connections get their turn
constexpr const char* gone_early = "the client hung up during the handshake";
constexpr auto report_interval = std::chrono::seconds(1);
constexpr std::uint64_t request_cost = 512;        // bytes in flight that any request counts for
constexpr std::uint32_t most_status = 512 * 1024;  // bytes that a BLOCK_STATUS may hold
constexpr std::size_t most_unsent = 4096;  // answers that wait for a client which goes on asking

// Bytes in flight: what the request holds until its answer has gone.
std::uint64_t cost_of(const protocol::Command& command) {
    switch (command.type) {
        case protocol::CommandType::read:
        case protocol::CommandType::write:
            return request_cost + command.length;
        case protocol::CommandType::block_status:
            return request_cost + std::min(command.length, most_status);
        default:
            return request_cost;
    }
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

Session::Session(Worker& worker, Socket socket, const ExportRegistry& exports,
                 const SessionLimits& limits)
    : worker_(worker),
      stream_(std::move(socket)),
      exports_(exports),
      limits_(limits),
      resume_(worker.io(), asio::steady_timer::time_point::max()),
      deadline_(worker.io()) {}

void Session::start(std::shared_ptr<Session> session) {
    Worker& worker = session->worker_;
    worker.enter(session);
    asio::co_spawn(worker.io(), run(std::move(session)), asio::detached);  // run() handles errors
}

asio::awaitable<void> Session::run(std::shared_ptr<Session> session) {
    Session& self = *session;
    bool failed = false;
    try {
        if (co_await self.negotiate()) co_await self.serve();
        co_await self.settle();
    } catch (const std::exception& error) {
        failed = true;
        self.reason_ = error.what();
    }
    self.cut(self.reason_);
    while (self.operations_ != nullptr) co_await self.pause();
    self.deadline_.cancel();
    self.report_end(failed);
    self.worker_.leave(session);
}

void Session::report_end(bool failed) {
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    storage::LogLine line(failed ? spdlog::level::err : spdlog::level::info);
    line.with("peer", stream_.peer());
    std::string done;
    std::string error = failed ? reason_ : "";
    if (negotiation_) {  // it never agreed on an export
        const protocol::Asked asked = negotiation_->asked();
        if (asked.export_name) line.with("export", *asked.export_name);
        if (!failed) error = asked.refusal;
        done = asked.words.empty() ? "" : asked.words + "; ";
    } else {
        const std::string& name = agreement_.export_info.name;
        line.with("export", name);
        done =
            fmt::format("export {}: {} request{}, {} read, {} written; ", config::in_quotes(name),
                        counts_.requests, counts_.requests == 1 ? "" : "s",
                        config::human_size(counts_.read), config::human_size(counts_.written));
    }
    line.with("requests", counts_.requests)
        .with("bytes_read", counts_.read)
        .with("bytes_written", counts_.written)
        .with("seconds", seconds)
        .with("reason", reason_);
    if (!error.empty()) line.with("error", error);
    line.say("{}: {}closed after {:.1f} s: {}", stream_.peer(), done, seconds, reason_);
}

// --- negotiating

asio::awaitable<bool> Session::negotiate() {
    deadline_.expires_after(limits_.handshake);
    deadline_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
        if (const auto self = weak.lock(); self && !error && self->state_ == State::negotiating) {
            self->cut("the handshake took too long");
        }
    });
    negotiation_.emplace(exports_);
    if (!co_await send_all(negotiation_->greeting())) co_return false;
    std::array<std::byte, 4096> buffer;
    for (;;) {
        if (const auto [error] = co_await stream_.wait_readable(as_result); error) co_return false;
        iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
        const Stream::Result got = stream_.receive({&piece, 1});
        if (got.would_block) continue;
        if (got.ended) {
            if (reason_.empty()) reason_ = gone_early;
            co_return false;
        }
        std::size_t used = 0;
        const auto next = negotiation_->feed(std::span(buffer).first(got.bytes), used);
        if (!co_await send_all(negotiation_->take_output())) co_return false;
        if (next == protocol::Negotiation::Next::receive) continue;
        if (next == protocol::Negotiation::Next::close) {
            const bool aborted = negotiation_->reason().empty();
            reason_ = aborted ? "the client left the handshake" : negotiation_->reason();
            co_return false;
        }
        agreement_ = negotiation_->agreement();
        negotiation_.reset();
        export_ = exports_.open(agreement_.export_info.name);
        if (!export_ || export_->info.size != agreement_.export_info.size) {
            reason_ = "the export went away during the handshake";
            co_return false;
        }
        if (state_ != State::negotiating) co_return false;
        for (storage::Device* device : volume().devices()) lanes().open(*device);
        // Requests that came along with the last option.
        first_ = &worker_.gulps().take();
        const std::span<std::byte> room = first_->room(got.bytes - used);
        std::memcpy(room.data(), buffer.data() + used, got.bytes - used);
        first_->received(got.bytes - used);
        break;
    }
    state_ = State::serving;
    storage::LogLine(spdlog::level::debug)
        .with("peer", stream_.peer())
        .with("export", agreement_.export_info.name)
        .say("{}: serving export {}{}{}", stream_.peer(),
             config::in_quotes(agreement_.export_info.name),
             agreement_.structured_replies ? ", structured replies" : "",
             agreement_.base_allocation ? ", base:allocation" : "");
    co_return true;
}

asio::awaitable<bool> Session::send_all(std::vector<std::byte> bytes) {
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    while (piece.iov_len != 0) {
        const Stream::Result done = stream_.send({&piece, 1});
        if (done.ended) {
            if (reason_.empty()) reason_ = gone_early;
            co_return false;
        }
        if (done.would_block) {
            if (const auto [error] = co_await stream_.wait_writable(as_result); error) {
                co_return false;
            }
        }
        piece.iov_base = static_cast<std::byte*>(piece.iov_base) + done.bytes;
        piece.iov_len -= done.bytes;
    }
    co_return true;
}

// --- serving

asio::awaitable<void> Session::serve() {
    Gulp* gulp = first_;
    first_ = nullptr;
    for (int rounds = 0; !reading_is_over();) {
        if (gulp == nullptr) {
            const auto [error] = co_await stream_.wait_readable(as_result);
            if (error || reading_is_over()) break;
            gulp = &worker_.gulps().take();
            std::memcpy(gulp->room(rest_length_).data(), rest_.data(), rest_length_);
            gulp->received(rest_length_);
            rounds = 0;
        }
        resumed_ = false;
        Received received = Received::blocked;
        if (consume(*gulp)) received = receive(*gulp);
        if ((received == Received::all_asked || received == Received::less) && !consume(*gulp)) {
            received = Received::blocked;  // what is in the gulp waits for more than bytes
        }
        flush();
        if (operations_ != nullptr && operations_->next_ == nullptr) worker_.submit_if_alone();
        if (received == Received::ended || reading_is_over()) break;
        if (received == Received::blocked) {
            co_await pause();
        } else if (received == Received::all_asked || gulp->bytes().size() > rest_.size()) {
            // There is more to take; but copies that wait, and other clients, come first.
            if (++rounds == rounds_per_turn || lanes().busy()) {
                rounds = 0;
                co_await asio::post(worker_.io(), asio::use_awaitable);
            }
        } else {
            rest_length_ = gulp->bytes().size();
            std::memcpy(rest_.data(), gulp->bytes().data(), rest_length_);
            gulp->consume(rest_length_);
            worker_.gulps().give_back(*gulp);
            gulp = nullptr;
        }
    }
    if (gulp != nullptr) {
        gulp->consume(gulp->bytes().size());
        worker_.gulps().give_back(*gulp);
    }
}

Session::Received Session::receive(Gulp& gulp) {
    std::array<iovec, most_lent + 1> pieces;
    std::size_t count = 0;
    std::size_t lent = 0;
    const bool into_write = writing_ != nullptr && !writing_->discards();
    if (into_write) {
        count = writing_->lend(std::span(pieces).first(most_lent));
        for (std::size_t i = 0; i != count; ++i) lent += pieces[i].iov_len;
        if (lent == 0) return Received::blocked;
    }
    std::size_t asked = lent;
    if (!into_write || lent == writing_->missing()) {
        const std::span<std::byte> room =
            gulp.room(last_write_ >= large_write ? small_gulp : Gulp::capacity);
        pieces[count++] = {.iov_base = room.data(), .iov_len = room.size()};
        asked += room.size();
    }
    const Stream::Result got = stream_.receive(std::span(pieces).first(count));
    if (worker_.trace() != nullptr) received_at_ = storage::TraceClock::now();
    if (got.would_block) return Received::less;
    if (got.ended) {
        if (got.error != 0) cut(fmt::format("receiving failed: {}", std::strerror(got.error)));
        if (reason_.empty()) reason_ = "the client hung up";
        return Received::ended;
    }
    moved_ += got.bytes;
    const std::size_t direct = std::min(got.bytes, lent);
    if (direct != 0) {
        writing_->received(direct);
        write_received();
    }
    gulp.received(got.bytes - direct);
    return got.bytes == asked ? Received::all_asked : Received::less;
}

bool Session::consume(Gulp& gulp) {
    while (!reading_is_over()) {
        const std::span<const std::byte> bytes = gulp.bytes();
        if (writing_ != nullptr) {
            if (bytes.empty()) return true;
            const std::size_t used = writing_->take(bytes);
            gulp.consume(used);
            write_received();
            if (used == 0) return false;
        } else if (discard_ != 0) {
            if (bytes.empty()) return true;
            const std::size_t used = std::min<std::size_t>(bytes.size(), discard_);
            gulp.consume(used);
            discard_ -= static_cast<std::uint32_t>(used);
        } else {
            if (bytes.size() < protocol::request_size) return true;
            if (over_limit() || issuing_ != nullptr) return false;
            const auto request = protocol::decode_request(bytes.first<protocol::request_size>());
            gulp.consume(protocol::request_size);
            if (!request) {
                hang_up("a request without its magic number");
                return false;
            }
            begin(*request);
        }
    }
    return false;
}

void Session::write_received() {
    if (writing_->missing() != 0) return;
    WriteOperation& complete = *writing_;
    writing_ = nullptr;
    if (Trace* const trace = worker_.trace(); trace != nullptr) {
        trace->payload.record(storage::TraceClock::now() - complete.received_at_);
    }
    complete.payload_complete();
}

void Session::begin(const protocol::Request& request) {
    ++counts_.requests;
    if (Trace* const trace = worker_.trace(); trace != nullptr) {
        trace->received.record(storage::TraceClock::now() - received_at_);
    }
    const protocol::Admission admission = protocol::admit(request, agreement_);
    if (const auto* command = std::get_if<protocol::Command>(&admission)) {
        if (state_ == State::draining && command->type != protocol::CommandType::disc) {
            refuse({.error = protocol::Error::eshutdown,
                    .cookie = command->cookie,
                    .discard = command->type == protocol::CommandType::write ? command->length : 0,
                    .as_chunk = agreement_.structured_replies});
        } else {
            execute(*command);
        }
    } else if (const auto* refusal = std::get_if<protocol::Refusal>(&admission)) {
        refuse(*refusal);
    } else {
        hang_up(std::get<protocol::Hangup>(admission).reason);
    }
}

void Session::execute(const protocol::Command& command) {
    protocol::ReplyHeader header;
    switch (command.type) {
        case protocol::CommandType::read:
            counts_.read += command.length;
            enlist(worker_.reads(), command).start(*this, command);
            return;
        case protocol::CommandType::write:
            counts_.written += command.length;
            last_write_ = command.length;
            writing_ = &enlist(worker_.writes(), command);
            writing_->start(*this, command);
            write_received();  // it may be empty
            return;
        case protocol::CommandType::trim:
        case protocol::CommandType::write_zeroes:
            if (command.fast_zero && command.no_hole) {  // every page would have to be written
                refuse({.error = protocol::Error::enotsup, .cookie = command.cookie});
                return;
            }
            enlist(worker_.zeroes(), command).start(*this, command);
            return;
        case protocol::CommandType::block_status:
            enlist(worker_.statuses(), command).start(*this, command);
            return;
        case protocol::CommandType::flush:  // every answered write is in device memory already
        case protocol::CommandType::cache:  // and all of it is cache
            send_header(header, protocol::encode_simple_reply(header, protocol::Error::none,
                                                              command.cookie));
            return;
        case protocol::CommandType::disc:
            end_of_requests_ = true;
            if (reason_.empty()) reason_ = "the client disconnected";
            return;
    }
}

void Session::refuse(const protocol::Refusal& refusal) {
    storage::LogLine(spdlog::level::debug)
        .with("peer", stream_.peer())
        .with("export", agreement_.export_info.name)
        .with("error", protocol::name_of(refusal.error))
        .say("{}: refused a request: {}", stream_.peer(), protocol::name_of(refusal.error));
    discard_ = refusal.discard;
    protocol::ReplyHeader header;
    send_header(header, refusal.as_chunk
                            ? protocol::encode_error_chunk(header, refusal.cookie, refusal.error)
                            : protocol::encode_simple_reply(header, refusal.error, refusal.cookie));
}

void Session::send_header(const protocol::ReplyHeader& header, std::size_t length) {
    Outbox::Item& item = outbox_.add(nullptr);
    item.header = header;
    item.header_length = static_cast<std::uint8_t>(length);
    item.payload = nullptr;
    item.payload_length = 0;
    item.operation = nullptr;
}

void Session::flush_soon() {
    if (flush_queued_) return;
    flush_queued_ = true;
    worker_.flush_after_turn(*this);
}

void Session::flush() {
    flush_queued_ = false;
    if (state_ == State::closed) return;
    if (!waiting_to_send_ && !outbox_.nothing_to_send()) {
        // An answer tells that the payload of its write is where everybody sees it.
        storage::store_fence();
        std::array<iovec, most_sent> pieces;
        const bool was_full = outbox_.size() > most_unsent;
        while (!outbox_.nothing_to_send()) {
            const Stream::Result done = stream_.send({pieces.data(), outbox_.gather(pieces)});
            if (done.ended) {
                cut(done.error == EPIPE || done.error == ECONNRESET
                        ? "the client hung up"
                        : fmt::format("sending failed: {}", std::strerror(done.error)));
                return;
            }
            if (done.would_block) {
                waiting_to_send_ = true;
                stream_.wait_writable([self = shared_from_this()](boost::system::error_code error) {
                    self->waiting_to_send_ = false;
                    if (!error) self->flush();
                });
                break;
            }
            moved_ += done.bytes;
            outbox_.sent(done.bytes);
        }
        if (was_full && outbox_.size() <= most_unsent) resume_receiving();
        if (counts_.requests - requests_at_flush_ == 1 && operations_ == nullptr) {
            worker_.expect_next_soon();
        }
        requests_at_flush_ = counts_.requests;
    }
    if (hang_up_ != nullptr) cut(hang_up_);
    if (end_of_requests_) resume_receiving();
}

// --- operations

void Session::link(Operation& operation, const protocol::Command& command) {
    operation.previous_ = nullptr;
    operation.next_ = operations_;
    if (operations_ != nullptr) operations_->previous_ = &operation;
    operations_ = &operation;
    if (worker_.trace() != nullptr) operation.received_at_ = received_at_;
    in_flight_ += cost_of(command);
    worker_.charge(cost_of(command));
}

void Session::unlink(Operation& operation) {
    const bool was_over = in_flight_ > limits_.in_flight;
    in_flight_ -= cost_of(operation.command());
    worker_.discharge(cost_of(operation.command()));
    if (operation.previous_ != nullptr) {
        operation.previous_->next_ = operation.next_;
    } else {
        operations_ = operation.next_;
    }
    if (operation.next_ != nullptr) operation.next_->previous_ = operation.previous_;
    if (was_over || operations_ == nullptr) resume_receiving();
    if (state_ == State::draining && operations_ == nullptr) stream_.stop_receiving();
}

bool Session::over_limit() {
    if (outbox_.size() > most_unsent) return true;
    if (operations_ == nullptr) return false;
    if (in_flight_ > limits_.in_flight) return true;
    if (!worker_.over_limit()) return false;
    worker_.wait_for_room(*this);
    return true;
}

void Session::resume_receiving() {
    resumed_ = true;
    if (paused_) resume_.cancel();
}

asio::awaitable<void> Session::pause() {
    if (!resumed_) {
        paused_ = true;
        co_await resume_.async_wait(as_result);
        paused_ = false;
    }
    resumed_ = false;
}

std::uint32_t Session::looks_without_progress() {
    const bool progress = std::exchange(moved_at_look_, moved_) != moved_;
    looks_without_progress_ = progress ? 0 : looks_without_progress_ + 1;
    return looks_without_progress_;
}

void Session::answered(const Operation& operation) {
    Trace* const trace = worker_.trace();
    if (trace == nullptr) return;
    (operation.command().type == protocol::CommandType::read ? trace->read : trace->write)
        .record(storage::TraceClock::now() - operation.received_at_);
}

void Session::enter_read(const ReadOperation& operation, bool in_one) {
    ++unanswered_reads_[in_one ? 1 : 0];
    if (in_one) issuing_ = &operation;
}

void Session::is_issued(const ReadOperation& operation) {
    if (issuing_ != &operation) return;
    issuing_ = nullptr;
    resume_receiving();
}

void Session::leave_read(const ReadOperation& operation, bool in_one) {
    --unanswered_reads_[in_one ? 1 : 0];
    is_issued(operation);
}

void Session::report_failure(const Operation& operation, storage::Status status) {
    const Clock::time_point now = Clock::now();
    if (last_report_ != Clock::time_point{} && now - last_report_ < report_interval) {
        ++unreported_;
        return;
    }
    const protocol::Command& command = operation.command();
    const std::string_view request = protocol::name_of(command.type);
    const std::string_view error = protocol::name_of(wire_error(status));
    const std::string devices = suspects(volume(), status);
    storage::LogLine(spdlog::level::warn)
        .with("peer", stream_.peer())
        .with("export", agreement_.export_info.name)
        .with("request", request)
        .with("offset", command.offset)
        .with("length", command.length)
        .with("error", error)
        .with("device", devices)
        .with("unreported", unreported_)
        .say(
            "{}: export {}: {} of {} at offset {} failed: {}: {} {}{}", stream_.peer(),
            config::in_quotes(agreement_.export_info.name), request,
            config::human_size(command.length), command.offset, error,
            status == storage::Status::no_space ? "no space left on" : "an error of", devices,
            unreported_ == 0 ? "" : fmt::format(" (and {} more since the last line)", unreported_));
    last_report_ = now;
    unreported_ = 0;
}

// --- draining and closed

void Session::drain() {
    if (state_ == State::negotiating && negotiation_) negotiation_->shut_down();
    if (state_ != State::serving) return;
    state_ = State::draining;
    reason_ = "the server is stopping";
    if (operations_ == nullptr) stream_.stop_receiving();
}

asio::awaitable<void> Session::settle() {
    if (state_ == State::closed) co_return;
    end_of_requests_ = true;
    if (writing_ != nullptr) {  // the rest of its payload will never come
        WriteOperation& broken = *writing_;
        writing_ = nullptr;
        broken.abandon();
    }
    deadline_.expires_after(limits_.farewell);
    deadline_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
        if (const auto self = weak.lock(); self && !error) {
            self->cut("the client did not take its last answers");
        }
    });
    for (;;) {
        flush();
        resumed_ = false;  // by flush() itself; all that it tells is looked at here
        if (state_ == State::closed || (operations_ == nullptr && outbox_.empty())) break;
        co_await pause();
    }
}

void Session::hang_up(const char* reason) {
    hang_up_ = reason;
    end_of_requests_ = true;
}

void Session::cut(const std::string& reason) {
    if (state_ == State::closed) return;
    state_ = State::closed;
    reason_ = reason;
    writing_ = nullptr;
    outbox_.clear();
    stream_.close();
    for (Operation* operation = operations_; operation != nullptr;) {
        Operation* const next = operation->next_;
        operation->abandon();
        operation = next;
    }
    resume_receiving();
}

}  // namespace gpunbd::server
