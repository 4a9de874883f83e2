#include "server/contents/kept_mappings.hpp"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <utility>

#include "server/keeping/descriptor_name.hpp"
#include "storage/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

const std::string mappings_name = std::string(own_prefix) + "mappings";

}  // namespace

KeptMappings::KeptMappings(DescriptorStore& store, HandedOver& handed_over)
    : store_(store), left_(handed_over.take(mappings_name)) {}

KeptMappings::~KeptMappings() {
    if (undoing_.joinable()) undoing_.join();
}

void KeptMappings::keep(const std::vector<int>& files) {
    if (files == kept_ && !others_kept_) return;
    auto wrong = store_.remove(mappings_name);
    for (std::size_t i = 0; !wrong && i != files.size(); ++i) {
        wrong = store_.store(mappings_name, files[i]);
    }
    if (wrong) spdlog::warn("if this server is killed, its end takes longer: {}", *wrong);
    kept_ = files;
    others_kept_ = false;
}

void KeptMappings::undo_now() {
    keep({});  // this copy is to be the last one
    if (const auto wrong = store_.barrier(std::chrono::seconds(10))) spdlog::warn("{}", *wrong);
    left_.clear();
}

void KeptMappings::undo(std::shared_ptr<Files> left, std::function<void()> then) {
    if (left->empty()) return then();
    const storage::SignalsBlocked blocked;
    undoing_ = std::thread([left = std::move(left), then = std::move(then)] {
        left->clear();
        then();
    });
}

}  // namespace gpunbd::server
