#include "server/exports/offered_exports.hpp"

#include <fmt/format.h>

#include <utility>

#include "config/client_clones.hpp"
#include "server/exports/export.hpp"
#include "server/net/connection_slots.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

protocol::ExportInfo info_for(const Export& exported, const Verdict& verdict) {
    protocol::ExportInfo info = exported.info;
    info.read_only = info.read_only || verdict.access == Access::read_only;
    return info;
}

bool is_made_for_client(const Export& exported) {
    return !exported.options.provenance.made_by.empty();
}

bool share_pages(const Export& a, const Export& b) {
    return a.volume && b.volume && a.volume->shares_pools_of(*b.volume);
}

}  // namespace

protocol::Listing OfferedExports::list() const { return {.names = exports_.names()}; }

// Clones of templates are not listed: their clients open the template, and their names may be
// those of other machines.
std::optional<protocol::ExportInfo> OfferedExports::next(protocol::Listing& listing) const {
    const PeerIdentity applicant(peer_);
    GPUNBD_ASSERT(listing.next <= listing.names->size(), "a listing ends with its last name");
    while (listing.next != listing.names->size()) {
        const std::string& name = (*listing.names)[listing.next++];
        if (const auto there = exports_.find(name)) {
            const Verdict verdict = there->access.decide(applicant);
            if (verdict.access != Access::denied && !is_made_for_client(*there)) {
                return info_for(*there, verdict);
            }
        } else if (const Target target = target_of(name); target.its_template) {
            auto info = info_of_clones(*target.its_template, target.verdict);
            if (info) return info;
        }
    }
    return std::nullopt;
}

// Checks all templates without an early exit, as open() does.
OfferedExports::Target OfferedExports::target_of(std::string_view name) const {
    const PeerIdentity applicant(peer_);
    Target target{.name = std::string(name)};
    const auto templates = exports_.templates();
    for (const auto& each : *templates) {
        const Verdict verdict = each->access.decide(applicant);
        auto client = each->client_of(applicant, name);
        if (!client || verdict.access == Access::denied) continue;
        if (client->why_not.empty()) target.name = config::name_of_clone(each->options, client->id);
        target.its_template = each;
        target.client = *std::move(client);
        target.verdict = verdict;
    }
    return target;
}

std::optional<protocol::ExportInfo> OfferedExports::info_of_clones(
    const ExportTemplate& its_template, const Verdict& verdict) const {
    const config::CloneTemplate& wanted = its_template.options.clone_per_client;
    const auto source = exports_.find(wanted.of);
    if (!source) return std::nullopt;
    protocol::ExportInfo info = info_of(its_template.options);
    info.size = wanted.size.value_or(source->info.size);
    info.read_only = verdict.access == Access::read_only;
    return info;
}

// Checks all exports without an early exit, so that timing reveals nothing.
OfferedExports::Opened OfferedExports::open(std::string_view name) const {
    const PeerIdentity applicant(peer_);
    const std::string target = target_of(name).name;
    const auto exports = exports_.snapshot();
    const std::shared_ptr<const Export>* found = nullptr;
    Verdict found_verdict;
    bool by_name = false;
    for (const auto& each : *exports) {
        const Verdict verdict = each->access.decide(applicant);
        const bool named = each->info.name == target;
        const bool by_default = name.empty() && !by_name && each == exports->front();
        if (!named && !by_default) continue;
        found = &each;
        found_verdict = verdict;
        by_name = named;
    }
    if (found == nullptr || found_verdict.access == Access::denied) return {};
    Opened opened{*found, info_for(**found, found_verdict)};
    for (const auto& each : *exports) {
        if (each == *found || !share_pages(*each, **found) || is_made_for_client(*each)) continue;
        if (each->access.decide(applicant).access == Access::denied) continue;
        opened.info.related.push_back(each->info.name);
    }
    return opened;
}

std::optional<protocol::ExportInfo> OfferedExports::find(std::string_view name) const {
    Opened opened = open(name);
    if (opened.exported) return std::move(opened.info);
    const Target target = target_of(name);
    if (!target.its_template) return std::nullopt;
    return info_of_clones(*target.its_template, target.verdict);
}

bool OfferedExports::ready(std::string_view name) const {
    if (std::exchange(answered_, false)) return true;
    refusal_.clear();
    if (open(name).exported) return true;
    Target target = target_of(name);
    if (!target.its_template) return true;
    refusal_ = std::move(target.client.why_not);
    if (!refusal_.empty()) return true;
    clone_request_ = {.template_name = target.its_template->options.name,
                      .client = std::move(target.client.id),
                      .peer = peer_key(peer_)};
    return false;
}

std::string OfferedExports::enter(std::string_view name) const {
    const Opened opened = open(name);
    if (!opened.exported && !refusal_.empty()) return std::exchange(refusal_, {});
    if (!opened.exported) return "the export was removed";
    GPUNBD_ASSERT(lease_ == nullptr, "a client enters one export at a time");
    ExportUse::Answer answer = opened.exported->use->enter(peer_key(peer_));
    lease_ = std::move(answer.lease);
    return std::move(answer.refusal);
}

std::string OfferedExports::why_not(std::string_view name) const {
    const auto there = exports_.open(name);
    if (!there) return ExportDirectory::why_not(name);
    const Verdict verdict = there->access.decide(PeerIdentity(peer_));
    if (verdict.access != Access::denied) return ExportDirectory::why_not(name);
    return fmt::format("which it may not open ({})", there->access.why(verdict));
}

}  // namespace gpunbd::server
