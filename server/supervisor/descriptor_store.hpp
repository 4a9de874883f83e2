// Where a server puts descriptors that are to outlive it: with its supervisor, systemd or `gpunbd
// keep`, by the protocol of systemd's file descriptor store. The next server finds them handed
// over.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/supervisor/notify_socket.hpp"

namespace gpunbd::server {

class DescriptorStore {
 public:
    // Of the supervisor that `notify` speaks to, which outlives the store, and which keeps `names`
    // already. FDSTORE, taken out of the environment, says how many descriptors it keeps. Null: it
    // keeps none. Throws std::runtime_error where FDSTORE makes no sense.
    static std::unique_ptr<DescriptorStore> from_environment(const NotifySocket& notify,
                                                             const std::vector<std::string>& names);

    DescriptorStore(const NotifySocket& notify, std::optional<std::uint64_t> capacity,
                    const std::vector<std::string>& names);

    // The supervisor does not listen to this process yet: messages wait in their order, and a
    // barrier is over at once. `knows`: the supervisor keeps that already.
    void hold_back();
    void knows(const std::string& name);
    // It listens from now on. Returns once it has handled all messages that waited, or with what
    // went wrong. Messages that could not be sent wait on, before any later one.
    std::optional<std::string> go_on(std::chrono::milliseconds timeout);

    // How many it keeps in all. Unset: it does not say, and may keep none; so is systemd before
    // 254.
    std::optional<std::uint64_t> capacity() const { return capacity_; }

    // All of these say what went wrong, if anything did, and may be called by any thread.
    //
    // Sends the descriptor, of which the supervisor has its own copy then. Several may have one
    // name. What is refused is not kept. Only after a barrier it is certain that it is.
    std::optional<std::string> store(const std::string& name, int fd);
    // Ends what is kept under that name, all of it.
    std::optional<std::string> remove(const std::string& name);
    // Returns once the supervisor has handled all that was asked before.
    std::optional<std::string> barrier(std::chrono::milliseconds timeout);

 private:
    std::optional<std::string> refusal(const std::string& name) const;
    // With the lock held.
    std::optional<std::string> tell(std::string message, std::optional<int> fd = {});
    std::optional<std::string> send_waiting();
    void count(const std::string& name);

    const NotifySocket& notify_;
    const std::optional<std::uint64_t> capacity_;
    struct Waiting {
        std::string message;
        OwnedFd descriptor;  // none: it carries none
    };
    mutable std::mutex mutex_;
    bool held_back_ = false;
    std::deque<Waiting> waiting_;
    std::map<std::string, std::uint64_t> kept_;  // how many of each name
    std::uint64_t count_ = 0;
    std::size_t names_length_ = 0;
};

}  // namespace gpunbd::server
