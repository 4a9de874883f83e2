#include "server/handover/kept_mappings.hpp"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "server/supervisor/descriptor_store.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

const std::string mappings_name = std::string(own_prefix) + "mappings";

}  // namespace

KeptMappings::KeptMappings(DescriptorStore& store, PassedDescriptors& handed_over)
    : store_(store), left_(handed_over.take(mappings_name)) {}

KeptMappings::~KeptMappings() {
    if (undoing_.joinable()) undoing_.join();
}

void KeptMappings::keep(const std::vector<const OwnedFd*>& files) {
    std::vector<int> numbers;
    numbers.reserve(files.size());
    for (const OwnedFd* file : files) numbers.push_back(file->get());
    if (numbers == kept_ && !others_kept_) return;
    if (const auto wrong = store_.remove(mappings_name)) {
        // The next call retries this: the stored files hold device memory.
        spdlog::warn(
            "the mappings of an earlier server cannot be removed from the supervisor yet: {}",
            *wrong);
        others_kept_ = true;
        return;
    }
    std::optional<std::string> wrong;
    for (std::size_t i = 0; !wrong && i != numbers.size(); ++i) {
        wrong = store_.store(mappings_name, numbers[i]);
    }
    if (wrong)
        spdlog::warn("the mappings cannot be stored, so a killed server takes longer to end: {}",
                     *wrong);
    kept_ = std::move(numbers);
    others_kept_ = false;
}

void KeptMappings::undo_now() {
    keep({});  // so that the copy that is closed next is the last one
    if (const auto wrong = store_.barrier(std::chrono::seconds(10))) spdlog::warn("{}", *wrong);
    left_.clear();
}

void KeptMappings::undo(std::shared_ptr<Files> left, std::function<void()> then) {
    if (left->empty()) return then();
    GPUNBD_ASSERT(!undoing_.joinable(), "the mappings of an earlier server are undone once");
    const storage::SignalsBlocked blocked;
    undoing_ = std::thread([left = std::move(left), then = std::move(then)] {
        left->clear();
        then();
    });
}

}  // namespace gpunbd::server
