#include "server/nbd/request_accounting.hpp"

#include <utility>

#include "server/nbd/operation.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

void RequestAccounting::serve(std::shared_ptr<ExportCounters> of_export,
                              std::shared_ptr<ActivityMap> activity) {
    GPUNBD_ASSERT(of_export_ == nullptr, "a connection counts for one export");
    of_export_ = std::move(of_export);
    activity_ = std::move(activity);
    received_at_ = storage::TraceClock::now();  // with the last bytes of the handshake
}

void RequestAccounting::begin(Operation& operation, protocol::CommandType type, bool alone) {
    const bool timed = (alone && std::exchange(first_received_, false)) || --until_timed_ == 0;
    if (timed) until_timed_ = trace_ == nullptr ? one_timed_of : 1;
    operation.received_at = received_at_;
    operation.timing = timed ? RequestTiming::all : untimed_;
    ++tally(type).begun;
}

void RequestAccounting::payload_complete(Operation& operation,
                                         storage::TraceClock::time_point now) {
    operation.waits.payload_complete(now);
    if (trace_ != nullptr) [[unlikely]]
        trace_->payload.record(storage::TraceClock::now() - operation.received_at);
}

void RequestAccounting::answered(const Operation& operation) {
    Tally& of_type = tally(operation.command().type);
    ++of_type.answered;
    of_type.bytes += operation.command().length;
    if (operation.received_at < longest_.received_at) keep_longest(operation);
    if (operation.timing != RequestTiming::none) [[unlikely]]
        time(operation);
}

void RequestAccounting::keep_longest(const Operation& operation) {
    longest_ = {.received_at = operation.received_at,
                .type = operation.command().type,
                .waits = operation.waits};
}

// Not inlined, so that requests that are not timed save no registers for it.
[[gnu::noinline]] void RequestAccounting::time(const Operation& operation) {
    const protocol::Command& command = operation.command();
    if (operation.timing == RequestTiming::all) {
        const auto took = storage::TraceClock::now() - operation.received_at;
        of_export_->of(command.type).latency.record(took);
        if (trace_ != nullptr) trace_->answered(command.type, took);
    }
    switch (command.type) {
        case protocol::CommandType::read:
            return activity_->read(command.offset, command.length);
        case protocol::CommandType::write:
        case protocol::CommandType::trim:
        case protocol::CommandType::write_zeroes:
            return activity_->written(command.offset, command.length);
        case protocol::CommandType::disc:
        case protocol::CommandType::flush:
        case protocol::CommandType::cache:
        case protocol::CommandType::block_status:
            return;
    }
}

void RequestAccounting::abandoned(protocol::CommandType type) {
    publish();  // that it has begun
    GPUNBD_ASSERT(in_flight_ != 0, "a request that is abandoned was in flight");
    of_export_->of(type).in_flight.subtract();
    counters_->in_flight.set(--in_flight_);
}

void RequestAccounting::answered_at_once(const protocol::Command& command) {
    RequestCounters& counters = of_export_->of(command.type);
    counters.count_answer(command.length);
    const Time now = storage::TraceClock::now();
    counters.latency.record(now - received_at_);
    of_export_->longest.add(static_cast<std::uint32_t>(command.type), received_at_, {.began = now},
                            now);
}

void RequestAccounting::refused(const protocol::Refusal& refusal) {
    RequestCounters& counters = of_export_->of(refusal.type);
    counters.count_answer(0);
    counters.failed(refusal.error);
    counters_->errors.add();
}

void RequestAccounting::failed(protocol::CommandType type, protocol::Error error) {
    of_export_->of(type).failed(error);
    counters_->errors.add();
}

void RequestAccounting::publish() {
    for (std::size_t type = 0; type != tallies_.size(); ++type) {
        Tally& each = tallies_[type];
        if (each.begun == 0 && each.answered == 0) continue;
        RequestCounters& counters = of_export_->by_type[type];
        GPUNBD_ASSERT(each.answered <= in_flight_ + each.begun,
                      "no more requests are answered than have begun");
        in_flight_ += each.begun - each.answered;
        counters.in_flight.set(counters.in_flight.value() + each.begun - each.answered);
        counters.requests.add(each.answered);
        switch (static_cast<protocol::CommandType>(type)) {
            case protocol::CommandType::read:  // publish_sent() counts its bytes
                break;
            case protocol::CommandType::write:
                written_ += each.bytes;
                [[fallthrough]];
            case protocol::CommandType::disc:
            case protocol::CommandType::flush:
            case protocol::CommandType::trim:
            case protocol::CommandType::cache:
            case protocol::CommandType::write_zeroes:
            case protocol::CommandType::block_status:
                counters.bytes.add(each.bytes);
        }
        each = {};
    }
    counters_->requests.set(requests_);
    counters_->in_flight.set(in_flight_);
    counters_->written.set(written_);
    if (longest_.received_at == Time::max()) return;
    of_export_->longest.add(static_cast<std::uint32_t>(longest_.type), longest_.received_at,
                            longest_.waits, storage::TraceClock::now());
    longest_.received_at = Time::max();
}

void RequestAccounting::publish_sent(std::uint64_t read_sent) {
    const std::uint64_t read = read_earlier_ + read_sent;
    if (read == read_) return;
    GPUNBD_ASSERT(read > read_, "sent bytes stay sent");
    of_export_->of(protocol::CommandType::read).bytes.add(read - read_);
    read_ = read;
    counters_->read.set(read);
}

void RequestAccounting::describe(ConnectionState& state) const {
    state.requests = requests_;
    state.read = read_;
    state.written = written_;
    state.errors = counters_->errors.value();
}

void RequestAccounting::continue_from(const ConnectionState& state) {
    GPUNBD_ASSERT(requests_ == 0 && in_flight_ == 0,
                  "a connection that is continued has taken no request here");
    requests_ = state.requests;
    read_ = read_earlier_ = state.read;
    written_ = state.written;
    counters_->read.set(state.read);
    counters_->errors.set(state.errors);
    publish();
}

}  // namespace gpunbd::server
