// A supervisor in this process, which handles each message on the thread that sends it. It outlives
// the servers, and can kill each of them at a given message.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/supervisor/notify_socket.hpp"
#include "server/supervisor/passed_descriptors.hpp"

namespace gpunbd::server::test {

class InProcessSupervisor {
 public:
    // Of one server.
    class Socket final : public NotifySocket {
     public:
        explicit Socket(InProcessSupervisor& supervisor)
            : NotifySocket("@model"), supervisor_(supervisor) {}
        std::optional<std::string> send(std::string_view message,
                                        std::span<const int> descriptors) const override {
            return supervisor_.take(*this, message, descriptors);
        }

     private:
        InProcessSupervisor& supervisor_;
    };

    // For the next server. Messages of the earlier one are ignored from now on.
    std::shared_ptr<const Socket> next_socket() {
        auto socket = std::make_shared<const Socket>(*this);
        const std::lock_guard lock(mutex_);
        current_ = socket.get();
        dead_ = false;
        until_kill_.reset();
        return socket;
    }
    // Copies of all descriptors.
    PassedDescriptors hand_over() const {
        const std::lock_guard lock(mutex_);
        PassedDescriptors::Descriptors copies;
        for (const auto& each : kept_) {
            copies.emplace(each.first, ::fcntl(each.second.get(), F_DUPFD_CLOEXEC, 0));
        }
        return PassedDescriptors(std::move(copies));
    }
    // What the server does from now on changes nothing that is kept: it counts as dead.
    void kill() {
        const std::lock_guard lock(mutex_);
        freeze();
    }
    // The server dies before it sends this message. 0: the next one.
    void kill_at(std::uint64_t message) {
        const std::lock_guard lock(mutex_);
        until_kill_ = message;
    }
    void cancel_kill() {
        const std::lock_guard lock(mutex_);
        until_kill_.reset();
    }
    bool is_dead() const {
        const std::lock_guard lock(mutex_);
        return dead_;
    }
    std::vector<std::string> names() const {
        const std::lock_guard lock(mutex_);
        std::vector<std::string> all;
        for (const auto& each : kept_) all.push_back(each.first);
        return all;
    }

 private:
    std::optional<std::string> take(const Socket& from, std::string_view text,
                                    std::span<const int> descriptors) {
        const std::string_view mark = "\nFDNAME=";
        const std::size_t at = text.find(mark);
        if (at == std::string_view::npos) return std::nullopt;
        const std::size_t begin = at + mark.size();
        const std::string name(text.substr(begin, text.find('\n', begin) - begin));
        const std::lock_guard lock(mutex_);
        if (&from != current_ || dead_) return std::nullopt;
        if (until_kill_ && (*until_kill_)-- == 0) {
            freeze();
            return std::nullopt;
        }
        if (text.starts_with("FDSTOREREMOVE=1")) {
            kept_.erase(name);
        } else if (text.starts_with("FDSTORE=1")) {
            for (const int each : descriptors) {
                kept_.emplace(name, ::fcntl(each, F_DUPFD_CLOEXEC, 0));
            }
        }
        return std::nullopt;
    }
    // The threads of the dead server still change its memory, so the next one gets a copy.
    void freeze() {
        dead_ = true;
        for (auto& each : kept_) each.second = copy_of(each.second.get());
    }
    static OwnedFd copy_of(int file) {
        struct stat its {};
        if (::fstat(file, &its) != 0) std::abort();
        OwnedFd copy(::memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!copy || ::ftruncate(copy.get(), its.st_size) != 0) std::abort();
        std::vector<char> bytes;
        for (off_t end = 0;;) {
            const off_t begin = ::lseek(file, end, SEEK_DATA);
            if (begin < 0) break;
            end = ::lseek(file, begin, SEEK_HOLE);
            bytes.resize(static_cast<std::size_t>(end - begin));
            if (::pread(file, bytes.data(), bytes.size(), begin) != end - begin) std::abort();
            if (::pwrite(copy.get(), bytes.data(), bytes.size(), begin) != end - begin) {
                std::abort();
            }
        }
        // Not the others: F_SEAL_EXEC would forbid writing to the copy.
        constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
        if ((::fcntl(file, F_GET_SEALS) & size_seals) == size_seals) {
            ::fcntl(copy.get(), F_ADD_SEALS, size_seals);
        }
        return copy;
    }

    mutable std::mutex mutex_;
    std::multimap<std::string, OwnedFd> kept_;
    const Socket* current_ = nullptr;
    std::optional<std::uint64_t> until_kill_;
    bool dead_ = false;
};

}  // namespace gpunbd::server::test
