#include "server/supervisor/descriptor_store.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "config/quote.hpp"
#include "server/base/process.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

std::unique_ptr<DescriptorStore> DescriptorStore::from_environment(
    const NotifySocket& notify, const std::vector<std::string>& names) {
    std::optional<std::uint64_t> capacity;
    if (const auto text = take_variable("FDSTORE")) {
        capacity = decimal(*text);
        if (!capacity) {
            throw std::runtime_error(fmt::format(
                "FDSTORE: {} is not a number of descriptors; unset it", config::in_quotes(*text)));
        }
        if (*capacity == 0) return nullptr;
    }
    return std::make_unique<DescriptorStore>(notify, capacity, names);
}

DescriptorStore::DescriptorStore(const NotifySocket& notify, std::optional<std::uint64_t> capacity,
                                 const std::vector<std::string>& names)
    : notify_(notify), capacity_(capacity) {
    for (const std::string& name : names) count(name);
}

void DescriptorStore::count(const std::string& name) {
    ++kept_[name];
    ++count_;
    names_length_ += name.size() + 1;
}

void DescriptorStore::add_kept(const std::string& name) {
    const Lock lock(mutex_);
    count(name);
}

void DescriptorStore::defer_messages() {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(waiting_.empty(), "messages are deferred before the first one");
    deferring_ = true;
}

std::optional<std::string> DescriptorStore::release_messages(std::chrono::milliseconds timeout) {
    {
        const Lock lock(mutex_);
        deferring_ = false;
    }
    return barrier(timeout);
}

std::optional<std::string> DescriptorStore::send_waiting() {
    GPUNBD_ASSERT(!deferring_, "a supervisor that ignores this process is sent nothing");
    for (; !waiting_.empty(); waiting_.pop_front()) {
        const Waiting& first = waiting_.front();
        const std::array<int, 1> sent{first.descriptor.get()};
        const std::size_t count = first.descriptor ? 1 : 0;
        if (auto wrong = notify_.send(first.message, std::span(sent).first(count))) return wrong;
    }
    return std::nullopt;
}

std::optional<std::string> DescriptorStore::send(std::string message, std::optional<int> fd) {
    if (!deferring_) {
        if (auto wrong = send_waiting()) return wrong;
        const std::array<int, 1> sent{fd.value_or(-1)};
        return notify_.send(message, std::span(sent).first(fd ? 1 : 0));
    }
    Waiting waiting{std::move(message), {}};
    if (fd) {
        waiting.descriptor = OwnedFd::copy_of(*fd);
        if (!waiting.descriptor) {
            return fmt::format("a descriptor cannot be copied: {}", std::strerror(errno));
        }
    }
    waiting_.push_back(std::move(waiting));
    return std::nullopt;
}

// A supervisor without room drops messages silently, so the limits are checked here.
std::optional<std::string> DescriptorStore::refusal(const std::string& name) const {
    if (!is_descriptor_name(name)) {
        return fmt::format("{} is not a valid name of a stored descriptor",
                           config::in_quotes(name));
    }
    if (capacity_ && count_ >= *capacity_) {
        return fmt::format(
            "the supervisor stores at most {} descriptors; raise FileDescriptorStoreMax= of the "
            "unit, or --max-descriptors of gpunbd keep",
            *capacity_);
    }
    if (names_length_ + name.size() + 1 > max_all_names) {
        return fmt::format("the names of {} stored descriptors use all of the {} available bytes",
                           count_, max_all_names);
    }
    return std::nullopt;
}

std::optional<std::string> DescriptorStore::store(const std::string& name, int fd) {
    const Lock lock(mutex_);
    if (auto wrong = refusal(name)) return wrong;
    // FDPOLL=0: the supervisor keeps the descriptor even if it looks like a closed connection.
    if (auto wrong = send(fmt::format("FDSTORE=1\nFDNAME={}\nFDPOLL=0", name), fd)) return wrong;
    count(name);
    return std::nullopt;
}

std::optional<std::string> DescriptorStore::remove(const std::string& name) {
    const Lock lock(mutex_);
    if (!is_descriptor_name(name)) {
        return fmt::format("{} is not the name of a stored descriptor", config::in_quotes(name));
    }
    if (auto wrong = send(fmt::format("FDSTOREREMOVE=1\nFDNAME={}", name))) return wrong;
    const auto found = kept_.find(name);
    if (found == kept_.end()) return std::nullopt;
    GPUNBD_ASSERT(count_ >= found->second && names_length_ >= found->second * (name.size() + 1),
                  "all stored descriptors and their names are counted");
    count_ -= found->second;
    names_length_ -= found->second * (name.size() + 1);
    kept_.erase(found);
    return std::nullopt;
}

std::optional<std::string> DescriptorStore::barrier(std::chrono::milliseconds timeout) {
    {
        const Lock lock(mutex_);
        if (deferring_) return std::nullopt;
        if (auto wrong = send_waiting()) return wrong;
    }
    return notify_.barrier(timeout);
}

}  // namespace gpunbd::server
