// Counts, times and maps the requests of one connection: for its metrics, its export's, the
// activity map and the trace. Counts are gathered and published when replies are sent, since a
// store that other threads read costs each request more.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "protocol/gate.hpp"
#include "server/counters/activity_map.hpp"
#include "server/counters/worker_counters.hpp"
#include "server/nbd/connection_state.hpp"
#include "server/nbd/trace.hpp"

namespace gpunbd::server {

class Operation;

// What is recorded of a request beyond the counts.
enum class RequestTiming : std::uint8_t {
    none,
    activity,  // for the activity map
    all,       // its latency, too
};

class RequestAccounting {
 public:
    // `trace`: not owned; null: none is kept.
    RequestAccounting(std::shared_ptr<ConnectionCounters> counters, Trace* trace)
        : counters_(std::move(counters)), trace_(trace) {}
    void serve(std::shared_ptr<ExportCounters> of_export, std::shared_ptr<ActivityMap> activity);

    const ConnectionCounters& counters() const { return *counters_; }
    std::uint64_t requests() const { return requests_; }
    storage::Counter& unsent_since() { return counters_->unsent_since; }

    // Bytes have been received; the requests among them are timed from now.
    void received() {
        received_at_ = storage::TraceClock::now();
        first_received_ = true;
    }
    // The connection starts to take the requests that it has received.
    void begin_batch() {
        untimed_ = activity_->is_watched() ? RequestTiming::activity : RequestTiming::none;
    }
    // One of them, before it is validated.
    void taken() {
        ++requests_;
        if (trace_ != nullptr) [[unlikely]]
            trace_->received.record(storage::TraceClock::now() - received_at_);
    }
    // An operation starts. `alone`: the connection has no other one.
    void begin(Operation& operation, protocol::CommandType type, bool alone);
    void payload_complete(Operation& operation, storage::TraceClock::time_point now);
    void answered(const Operation& operation);
    void abandoned(protocol::CommandType type);
    // The request was answered without an operation.
    void answered_at_once(const protocol::Command& command);
    void refused(const protocol::Refusal& refusal);
    void failed(protocol::CommandType type, protocol::Error error);
    void held_back() { of_export_->held_back.add(); }

    // Makes the counts visible to other threads. A client that has a reply finds it counted.
    void publish();
    // `read_sent`: bytes of READs that have been sent on this connection.
    void publish_sent(std::uint64_t read_sent);

    void describe(ConnectionState& state) const;
    void continue_from(const ConnectionState& state);

 private:
    using Time = storage::TraceClock::time_point;
    // Reading the clock for each request costs up to 12% of a 4 KiB READ. Of requests that arrive
    // together or while others are in flight, one in `one_timed_of` is timed.
    static constexpr std::uint32_t one_timed_of = 8;

    void time(const Operation& operation);
    void keep_longest(const Operation& operation);

    struct Tally {
        std::uint64_t begun = 0;
        std::uint64_t answered = 0;
        std::uint64_t bytes = 0;  // of the answered ones
    };
    Tally& tally(protocol::CommandType type) { return tallies_[static_cast<std::size_t>(type)]; }

    const std::shared_ptr<ConnectionCounters> counters_;
    Trace* const trace_;
    std::shared_ptr<ExportCounters> of_export_;           // from serve() on
    std::shared_ptr<ActivityMap> activity_;               // likewise
    std::array<Tally, protocol::command_types> tallies_;  // not published yet, by type
    std::uint64_t requests_ = 0;
    std::uint64_t in_flight_ = 0;
    std::uint64_t read_ = 0;          // bytes sent
    std::uint64_t written_ = 0;       // bytes
    std::uint64_t read_earlier_ = 0;  // bytes, sent by another process
    // Of the requests that were answered since publish(), the one that was received first.
    struct Longest {
        Time received_at = Time::max();  // there is none
        protocol::CommandType type{};
        storage::TransferWaits waits;
    };
    Longest longest_;
    Time received_at_;
    RequestTiming untimed_ = RequestTiming::none;  // of requests of this batch that are not timed
    bool first_received_ = false;    // no request of the last received bytes has started yet
    std::uint32_t until_timed_ = 1;  // requests
};

}  // namespace gpunbd::server
