#include "server/handover/retained_mappings.hpp"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "server/supervisor/descriptor_name.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

const std::string mappings_name = std::string(own_prefix) + "mappings";

}  // namespace

RetainedMappings::RetainedMappings(DescriptorStore& store, InheritedDescriptors& handed_over)
    : store_(store), left_(handed_over.take(mappings_name)) {}

RetainedMappings::~RetainedMappings() {
    if (undoing_.joinable()) undoing_.join();
}

void RetainedMappings::keep(const std::vector<const OwnedFd*>& files) {
    std::vector<int> numbers;
    numbers.reserve(files.size());
    for (const OwnedFd* file : files) numbers.push_back(file->get());
    if (numbers == kept_ && !others_kept_) return;
    if (const auto wrong = store_.remove(mappings_name)) {
        // Tried again by the next call: what is kept there holds memory of devices.
        spdlog::warn("mappings of an earlier server stay with the supervisor for now: {}", *wrong);
        others_kept_ = true;
        return;
    }
    std::optional<std::string> wrong;
    for (std::size_t i = 0; !wrong && i != numbers.size(); ++i) {
        wrong = store_.store(mappings_name, numbers[i]);
    }
    if (wrong) spdlog::warn("if this server is killed, its end takes longer: {}", *wrong);
    kept_ = std::move(numbers);
    others_kept_ = false;
}

void RetainedMappings::undo_now() {
    keep({});  // this copy is to be the last one
    if (const auto wrong = store_.barrier(std::chrono::seconds(10))) spdlog::warn("{}", *wrong);
    left_.clear();
}

void RetainedMappings::undo(std::shared_ptr<Files> left, std::function<void()> then) {
    if (left->empty()) return then();
    const storage::SignalsBlocked blocked;
    undoing_ = std::thread([left = std::move(left), then = std::move(then)] {
        left->clear();
        then();
    });
}

}  // namespace gpunbd::server
