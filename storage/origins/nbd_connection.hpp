#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include <boost/intrusive/list.hpp>

#include "storage/base/mutex.hpp"
#include "storage/base/owned_fd.hpp"

struct nbd_handle;

namespace gpunbd::storage {

class Libnbd;

// What a server says about its export when a connection is made. The sizes are checked: see
// NbdConnection::open().
struct NbdExport {
    std::string name;               // that the server gives it; empty: unknown
    std::string description;        // empty: none
    std::uint64_t size = 0;         // bytes
    std::uint64_t max_payload = 0;  // bytes of a read or write, a multiple of 4096
    bool is_read_only = false;
    bool can_flush = false;
    bool can_zero = false;
    bool can_multi_conn = false;  // a flush on one connection is for the writes of all
    bool has_map = false;         // block_status() is possible
};

// A connection to an export of an NBD server, by libnbd. Threads may use it at the same time: their
// requests are in flight together. One of them polls the socket for all, until its own request has
// ended.
class NbdConnection {
 public:
    struct Limits {
        std::chrono::milliseconds connect{10'000};  // without the look-up of a host's name
        // Without a part of any request sent or received: others may keep a server busy.
        std::chrono::milliseconds progress{30'000};
        std::chrono::milliseconds request{300'000};
    };
    enum class Outcome : std::uint8_t {
        done,
        refused,  // the server has answered with an error
        lost,     // the connection has ended, and is of no use any more
    };
    struct Result {
        Outcome outcome = Outcome::done;
        std::string why = {};         // for users, unless it is done
        bool is_unsupported = false;  // refused, since the server cannot do it
        bool is_answer = false;       // refused by the server, and not because there is none
    };

    // `with_map`: asks for base:allocation. A text is the reason for users why there is none,
    // without the URI.
    static std::variant<std::unique_ptr<NbdConnection>, std::string> open(const std::string& uri,
                                                                          Limits limits,
                                                                          bool with_map);

    const NbdExport& exported() const { return exported_; }

    // Offset and length are those of blocks of 4096 bytes, or end with the export. The length is at
    // most `max_payload`.
    Result read(std::uint64_t offset, std::span<std::byte> to);
    Result write(std::uint64_t offset, std::span<const std::byte> from);
    // Up to 2 GiB for these.
    Result zero(std::uint64_t offset, std::uint64_t length, bool keeps_space);
    // Calls `extent` with the length of each range from the offset on, which may be anything, and
    // whether it reads as zeroes. It must not throw.
    using OnExtent = std::function<void(std::uint64_t length, bool is_zero)>;
    Result block_status(std::uint64_t offset, std::uint64_t length, const OnExtent& extent);
    Result flush();

 private:
    struct Close {
        const Libnbd* nbd;
        void operator()(nbd_handle* handle) const;
    };

    using Clock = std::chrono::steady_clock;
    // On the stack of its thread. Guarded by mutex_.
    struct Request : boost::intrusive::list_base_hook<> {
        bool has_ended = false;  // libnbd does not use its memory any more
        Condition changed;       // it has ended, or no thread polls
    };

    NbdConnection(const Libnbd& nbd, Limits limits);
    // These return the reason for users of a failure, or an empty text.
    std::string connect(const std::string& uri, bool with_map) EXCLUDES(mutex_);
    std::string examine() EXCLUDES(mutex_);
    bool is_over() const REQUIRES(mutex_);
    // `issue`: returns the cookie of a new request, or -1, and gets its completion callback.
    template <typename Issue>
    Result perform(Issue issue) EXCLUDES(mutex_);
    // These do not throw, since libnbd uses the memory of requests until they have ended.
    void wait_for(Request& request) noexcept REQUIRES(mutex_);
    // Waits for the socket, without the mutex, and lets libnbd go on.
    void poll(Clock::time_point until) noexcept REQUIRES(mutex_);
    // The connection ends, and with it all requests.
    void give_up() noexcept REQUIRES(mutex_);
    void set_why_lost() noexcept REQUIRES(mutex_);
    Result result_of(bool is_done) REQUIRES(mutex_);

    const Libnbd& nbd_;
    const Limits limits_;
    const OwnedFd wake_;  // an eventfd: the thread that polls has to look at the direction again
    NbdExport exported_;

    Mutex mutex_;
    const std::unique_ptr<nbd_handle, Close> handle_ GUARDED_BY(mutex_);
    boost::intrusive::list<Request> requests_ GUARDED_BY(mutex_);
    bool is_polled_ GUARDED_BY(mutex_) = false;  // by one of their threads
    bool has_given_up_ GUARDED_BY(mutex_) = false;
    Clock::time_point progressed_at_ GUARDED_BY(mutex_);
    std::string why_lost_ GUARDED_BY(mutex_);  // the first reason; empty: unknown
};

}  // namespace gpunbd::storage
