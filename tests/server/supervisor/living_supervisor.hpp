// A supervisor on a thread of its own that stores descriptors like `gpunbd keep`. It can lose or
// corrupt them, or not answer.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/passed_descriptors.hpp"
#include "tests/server/supervisor/supervisor.hpp"

namespace gpunbd::server::test {

class LivingSupervisor {
    PlayedSupervisor socket_;

 public:
    LivingSupervisor() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

    const NotifySocket& way = socket_.way;

    // The names of the stored descriptors, after all earlier messages have been read.
    std::vector<std::string> names() {
        answers = true;
        static_cast<void>(way.barrier(std::chrono::minutes(1)));
        const std::lock_guard lock(mutex_);
        std::vector<std::string> all;
        for (const auto& each : kept_) all.push_back(each.first);
        return all;
    }
    // For the next server. The descriptors stay stored.
    PassedDescriptors hand_over() {
        names();
        const std::lock_guard lock(mutex_);
        PassedDescriptors::Descriptors copies;
        for (const auto& each : kept_) {
            copies.emplace(each.first, ::fcntl(each.second.get(), F_DUPFD_CLOEXEC, 0));
        }
        return PassedDescriptors(std::move(copies));
    }
    void lose(const std::string& name) {
        const std::lock_guard lock(mutex_);
        kept_.erase(name);
    }
    // Adds 1 to the byte at that offset of the file.
    void corrupt(const std::string& name, off_t offset) {
        const std::lock_guard lock(mutex_);
        const int fd = kept_.find(name)->second.get();
        unsigned char byte = 0;
        if (::pread(fd, &byte, 1, offset) != 1) std::abort();
        ++byte;
        if (::pwrite(fd, &byte, 1, offset) != 1) std::abort();
    }

    std::atomic<bool> answers{true};  // barriers

 private:
    void run(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            auto message = socket_.next();
            if (message) {
                const std::lock_guard lock(mutex_);
                take(*message);
            } else {
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
        }
    }
    void take(PlayedSupervisor::Message& message) {
        const std::string mark = "\nFDNAME=";
        const std::size_t at = message.text.find(mark);
        if (at == std::string::npos) {
            if (!answers) waiting_.push_back(std::move(message.descriptors));
            return;
        }
        const std::size_t begin = at + mark.size();
        const std::string name = message.text.substr(begin, message.text.find('\n', begin) - begin);
        if (message.text.starts_with("FDSTOREREMOVE=1")) {
            kept_.erase(name);
        } else if (message.text.starts_with("FDSTORE=1")) {
            for (OwnedFd& each : message.descriptors) kept_.emplace(name, std::move(each));
        }
    }

    std::mutex mutex_;
    std::multimap<std::string, OwnedFd> kept_;
    std::vector<std::vector<OwnedFd>> waiting_;
    std::jthread thread_;
};

// What the next server gets.
struct Inheritance {
    explicit Inheritance(LivingSupervisor& supervisor, std::optional<std::uint64_t> capacity = {})
        : descriptors(supervisor.hand_over()),
          store(supervisor.way, capacity, descriptors.names()) {}

    PassedDescriptors descriptors;
    DescriptorStore store;
};

}  // namespace gpunbd::server::test
