#include "server/exports/export_registry.hpp"

#include <algorithm>
#include <utility>

#include "config/client_clones.hpp"
#include "config/rules.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using Client = ExportTemplate::Client;

Client by_address(const PeerIdentity& applicant) {
    if (applicant.address) return {applicant.address->text(), {}};
    return {{}, "this export has a clone for each IP address: connect by TCP"};
}

Client by_tls_name(const Peer& peer) {
    if (!peer.tls || peer.tls->names.empty()) {
        return {{}, "this export has a clone for each certificate: connect by TLS with one"};
    }
    std::string name = config::rules::lower_case(peer.tls->names.front());
    if (config::is_client_id(name)) return {std::move(name), {}};
    return {{}, "the name in the certificate is not 1 to 64 letters, digits, or any of . _ @ : -"};
}

}  // namespace

std::optional<Client> ExportTemplate::client_of(const PeerIdentity& applicant,
                                                std::string_view name) const {
    if (needs_longer_name()) {
        auto machine = config::machine_of(options, name);
        if (!machine) return std::nullopt;
        return Client{*std::move(machine), {}};
    }
    if (name != options.name) return std::nullopt;
    return options.clone_per_client.name == config::ClientId::address ? by_address(applicant)
                                                                      : by_tls_name(applicant.peer);
}

ExportTemplates templates_in(const config::ExportList& exports) {
    ExportTemplates out;
    for (const config::ExportOptions& each : exports) {
        if (each.is_template()) out.push_back(std::make_shared<const ExportTemplate>(each));
    }
    return out;
}

void CloneRequests::send(CloneRequest request) const {
    GPUNBD_ASSERT(request.answer, "a request has a receiver for its answer");
    {
        const Lock lock(mutex_);
        if (receive_) return receive_(std::move(request));
    }
    request.answer("the server makes no clones now; try again later");
}

void CloneRequests::set_receiver(std::function<void(CloneRequest)> receive) {
    const Lock lock(mutex_);
    receive_ = std::move(receive);
}

void ExportRegistry::replace(Exports exports, ExportTemplates templates) {
    auto next = std::make_shared<const Exports>(std::move(exports));
    auto names = std::make_shared<Names>();
    names->reserve(next->size() + templates.size());
    for (const auto& each : *next) names->push_back(each->info.name);
    std::unordered_map<std::string_view, std::size_t> places;
    places.reserve(next->size());
    for (const auto& each : templates) {
        if (!each->needs_longer_name()) names->push_back(each->options.name);
    }
    for (std::size_t i = 0; i != next->size(); ++i) places.emplace((*names)[i], i);
    GPUNBD_ASSERT(places.size() == next->size(), "exports have different names");
    // Exports that stay have their options.
    const std::shared_ptr<const Exports> before = snapshot();
    ExportLookup earlier(*before);
    for (const auto& each : *next) {
        const auto* const found = earlier.find(each->info.name);
        if (found == nullptr || *found != each) each->use->apply(each->options);
    }
    std::shared_ptr<const Names> next_names = std::move(names);
    auto next_templates = std::make_shared<const ExportTemplates>(std::move(templates));
    const Lock lock(mutex_);
    exports_.swap(next);
    names_.swap(next_names);
    templates_.swap(next_templates);
    places_.swap(places);
}

std::shared_ptr<const ExportRegistry::Exports> ExportRegistry::snapshot() const {
    const Lock lock(mutex_);
    return exports_;
}

std::shared_ptr<const ExportRegistry::Names> ExportRegistry::names() const {
    const Lock lock(mutex_);
    return names_;
}

std::shared_ptr<const ExportTemplates> ExportRegistry::templates() const {
    const Lock lock(mutex_);
    return templates_;
}

std::shared_ptr<const Export> ExportRegistry::find(std::string_view name) const {
    const Lock lock(mutex_);
    const auto place = places_.find(name);
    GPUNBD_ASSERT(place == places_.end() || place->second < exports_->size(),
                  "the index and the list are replaced together");
    return place == places_.end() ? nullptr : (*exports_)[place->second];
}

std::shared_ptr<const Export> ExportRegistry::open(std::string_view name) const {
    if (auto named = find(name)) return named;
    const auto exports = snapshot();
    return name.empty() && !exports->empty() ? exports->front() : nullptr;
}

const std::shared_ptr<const Export>* ExportLookup::find_next(std::string_view name) {
    const std::size_t end = std::min(next_ + 2, exports_.size());  // one may be gone
    for (std::size_t at = next_; at != end; ++at) {
        if (exports_[at]->info.name != name) continue;
        skipped_ = skipped_ || at != next_;
        next_ = at + 1;
        return &exports_[at];
    }
    return nullptr;
}

const std::shared_ptr<const Export>* ExportLookup::find(std::string_view name) {
    if (const auto* const found = find_next(name)) return found;
    if (next_ == exports_.size() && !skipped_) return nullptr;  // all were found
    if (index_.empty()) {
        index_.reserve(exports_.size());
        for (const auto& each : exports_) index_.emplace(each->info.name, &each);
    }
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : found->second;
}

}  // namespace gpunbd::server
