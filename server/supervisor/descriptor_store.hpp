#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/supervisor/notify_socket.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

// Names of stored descriptors (sd_listen_fds_with_names(3)), for both sides: the server that stores
// them, and `gpunbd keep`.

inline constexpr std::size_t max_descriptor_name = 255;

// The next process gets all names in one environment variable, separated by ':'. The kernel does
// not execute a program with a variable longer than 128 KiB.
inline constexpr std::size_t max_all_names =
    std::size_t{128} * 1024 - std::string_view("LISTEN_FDNAMES=").size() - 1;

// The prefix of descriptors that a server has stored. Sockets of socket activation have other
// names: systemd uses the unit's name, gpunbd.socket.
inline constexpr std::string_view own_prefix = "gpunbd/";

// The pipe of a StartGate: a pre-started server reads from it before it begins.
inline constexpr std::string_view start_gate_name = "gpunbd/turn";

inline bool is_descriptor_name(std::string_view name) {
    return !name.empty() && name.size() <= max_descriptor_name &&
           std::all_of(name.begin(), name.end(),
                       [](char each) { return each >= ' ' && each <= '~' && each != ':'; });
}

// Stores descriptors beyond the end of the server, with the protocol of systemd's file descriptor
// store. The supervisor, systemd or `gpunbd keep`, passes them to the next server.
class DescriptorStore {
 public:
    // `notify` must outlive the store; `names` are the names of the descriptors that are already
    // stored. FDSTORE, which is removed from the environment, is the capacity. Returns null if the
    // supervisor stores no descriptors. Throws std::runtime_error if FDSTORE is invalid.
    static std::unique_ptr<DescriptorStore> from_environment(const NotifySocket& notify,
                                                             const std::vector<std::string>& names);

    DescriptorStore(const NotifySocket& notify, std::optional<std::uint64_t> capacity,
                    const std::vector<std::string>& names);

    // Queues messages while the supervisor still ignores this process. A barrier returns
    // immediately.
    void defer_messages();
    // Counts a descriptor that the supervisor stores already.
    void add_kept(const std::string& name);
    // Sends the queued messages and returns when the supervisor has handled them, or with the
    // problem. Messages that could not be sent stay queued before later ones.
    std::optional<std::string> release_messages(std::chrono::milliseconds timeout);

    // The total capacity. Unset: unknown, and possibly 0, as with systemd before 254.
    std::optional<std::uint64_t> capacity() const { return capacity_; }

    // These functions return the problem, if any. Any thread.
    //
    // Sends the descriptor; the supervisor has a copy then. Several descriptors can have one name.
    // A rejected descriptor is not stored. Only a barrier confirms that it is stored.
    std::optional<std::string> store(const std::string& name, int fd);
    // Removes all descriptors of that name.
    std::optional<std::string> remove(const std::string& name);
    // Returns once the supervisor has handled all earlier messages.
    std::optional<std::string> barrier(std::chrono::milliseconds timeout);

 private:
    std::optional<std::string> refusal(const std::string& name) const REQUIRES(mutex_);
    std::optional<std::string> send(std::string message, std::optional<int> fd = {})
        REQUIRES(mutex_);
    std::optional<std::string> send_waiting() REQUIRES(mutex_);
    void count(const std::string& name) REQUIRES(mutex_);

    const NotifySocket& notify_;
    const std::optional<std::uint64_t> capacity_;
    struct Waiting {
        std::string message;
        OwnedFd descriptor;  // may be empty
    };
    mutable Mutex mutex_;
    bool deferring_ GUARDED_BY(mutex_) = false;
    std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
    // The number of descriptors per name.
    std::map<std::string, std::uint64_t> kept_ GUARDED_BY(mutex_);
    std::uint64_t count_ GUARDED_BY(mutex_) = 0;
    std::size_t names_length_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gpunbd::server
