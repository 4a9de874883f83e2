#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/origins/nbd_connection.hpp"
#include "storage/origins/origin.hpp"

namespace gpunbd::storage {

// An export of another NBD server. A call has a connection of its own if the server permits so
// many; otherwise calls share one. A call that loses its connection makes another one and repeats
// its request.
//
// A server that was killed may have lost writes that it had answered, unless a flush followed. The
// first connection, the leader, shows that: all others are made while it lasts, and flushes are
// sent on it. If it lasts from before a write to the answer of a flush, the server has lasted too.
class OriginNbd final : public Origin {
 public:
    struct Limits {
        NbdConnection::Limits connection = {};
        std::chrono::milliseconds reconnect{30'000};  // of one call, for all attempts
        std::chrono::milliseconds first_pause{10};
        std::chrono::milliseconds longest_pause{1'000};
        std::chrono::milliseconds map{10'000};  // until the rest counts as data
    };
    // A text is the reason for users why the export cannot be an origin.
    static std::variant<std::unique_ptr<OriginNbd>, std::string> open(const std::string& uri,
                                                                      bool is_writable,
                                                                      Limits limits);

    const std::string& name() const override { return uri_; }
    std::uint64_t size() const override { return exported_.size; }
    std::optional<Extent> next_data(std::uint64_t offset) const override;
    bool can_zero() const override { return can_zero_; }
    bool can_be_opened_again() const override { return exported_.can_multi_conn; }
    SourceId id_of_contents() const override;
    bool may_have_lost_writes() const override EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        return is_unsafe_;
    }

 private:
    using Clock = std::chrono::steady_clock;
    using Result = NbdConnection::Result;
    static constexpr std::size_t most_connections = 16;
    static constexpr std::size_t leader = 0;
    enum class Kind : std::uint8_t { read, write, flush };
    // A place for a connection, which its calls own together.
    struct Place {
        std::shared_ptr<NbdConnection> connection = nullptr;  // null: it was lost
        std::uint64_t generation = 0;                         // in which it was made
        bool is_opening = false;                              // a call makes it
    };
    class Lease;

    OriginNbd(std::string uri, bool is_writable, Limits limits)
        : uri_(std::move(uri)), is_writable_(is_writable), limits_(limits) {}
    std::string problem(const std::string& why) const { return uri_ + ": " + why; }

    Error do_read(std::uint64_t offset, std::span<std::byte> to) override EXCLUDES(mutex_);
    Error do_write(std::uint64_t offset, std::span<const std::byte> from) override EXCLUDES(mutex_);
    Error do_zero(std::uint64_t offset, std::uint64_t length, bool keeps_space) override
        EXCLUDES(mutex_);
    // An error for good once the leader was lost after a write that no flush followed.
    Error do_flush() override EXCLUDES(mutex_);

    // These are for open(), and return the reason of a failure or an empty text.
    std::string start();
    std::string load_map(NbdConnection& connection);
    void add_data(std::uint64_t begin, std::uint64_t end);

    // Performs a request, again after each loss of its connection. `request` is called with an open
    // connection, and returns its Result.
    template <typename Request>
    Result run(Kind kind, Request request) EXCLUDES(mutex_);
    // The place with the connection for a call, or where the call has to make one. Empty: another
    // call makes the leader.
    std::optional<std::size_t> choose(bool leads) const REQUIRES(mutex_);
    bool is_current(std::size_t index) const REQUIRES(mutex_) {
        return places_[index].connection != nullptr && places_[index].generation == generation_;
    }
    // False: there is none, and `why` says why.
    bool open_leader(Clock::time_point since, std::string& why) EXCLUDES(mutex_);
    void open_other(std::size_t index) EXCLUDES(mutex_);
    // The reason why it is not the export that was opened; empty: it is.
    std::string difference(const NbdExport& found) const;
    void lose(const Lease& lease, const std::string& why) EXCLUDES(mutex_);
    // Whether the answer counts. If the leader was lost meanwhile, a server that is gone may have
    // given it.
    bool accept(Kind kind, const Lease& lease) EXCLUDES(mutex_);

    const std::string uri_;
    const bool is_writable_;
    const Limits limits_;
    NbdExport exported_;        // as it was opened
    std::vector<Extent> data_;  // in order
    std::atomic<bool> can_zero_{false};

    mutable Mutex mutex_;
    Condition opened_;  // a call has made a connection, or has given up
    std::array<Place, most_connections> places_ GUARDED_BY(mutex_);
    std::size_t usable_ GUARDED_BY(mutex_) = 1;        // connections that the server permits
    Clock::time_point grows_at_ GUARDED_BY(mutex_);    // before, no other one is opened
    std::uint64_t generation_ GUARDED_BY(mutex_) = 0;  // the number of leaders that were lost
    Clock::time_point lost_at_ GUARDED_BY(mutex_);     // the last one of these
    Clock::time_point says_at_ GUARDED_BY(mutex_);     // before, no line about a loss is logged
    bool has_said_lost_ GUARDED_BY(mutex_) = false;
    std::uint64_t written_ GUARDED_BY(mutex_) = 0;  // writes that were answered
    std::uint64_t flushed_ GUARDED_BY(mutex_) = 0;  // of these, before a flush
    bool is_unsafe_ GUARDED_BY(mutex_) = false;     // some of the others may be lost
    std::string ended_ GUARDED_BY(mutex_);  // why no request is possible any more; empty: they are
};

}  // namespace gpunbd::storage
