#include "server/exports/offered_exports.hpp"

#include <fmt/format.h>

#include <utility>

#include "server/net/connection_slots.hpp"

namespace gpunbd::server {

namespace {

protocol::ExportInfo info_for(const Export& exported, const Verdict& verdict) {
    protocol::ExportInfo info = exported.info;
    info.read_only = info.read_only || verdict.access == Access::read_only;
    return info;
}

}  // namespace

protocol::Listing OfferedExports::list() const { return {.names = exports_.names()}; }

std::optional<protocol::ExportInfo> OfferedExports::next(protocol::Listing& listing) const {
    const PeerIdentity applicant(peer_);
    while (listing.next != listing.names->size()) {
        const auto there = exports_.find((*listing.names)[listing.next++]);
        if (!there) continue;
        const Verdict verdict = there->access.decide(applicant);
        if (verdict.access != Access::denied) return info_for(*there, verdict);
    }
    return std::nullopt;
}

// Checks all exports without an early exit, so that timing reveals nothing.
OfferedExports::Opened OfferedExports::open(std::string_view name) const {
    const PeerIdentity applicant(peer_);
    const auto exports = exports_.snapshot();
    const std::shared_ptr<const Export>* found = nullptr;
    Verdict found_verdict;
    bool by_name = false;
    for (const auto& each : *exports) {
        const Verdict verdict = each->access.decide(applicant);
        const bool named = each->info.name == name;
        const bool by_default = name.empty() && !by_name && each == exports->front();
        if (!named && !by_default) continue;
        found = &each;
        found_verdict = verdict;
        by_name = named;
    }
    if (found == nullptr || found_verdict.access == Access::denied) return {};
    return {*found, info_for(**found, found_verdict)};
}

std::optional<protocol::ExportInfo> OfferedExports::find(std::string_view name) const {
    Opened opened = open(name);
    if (!opened.exported) return std::nullopt;
    return std::move(opened.info);
}

std::string OfferedExports::enter(std::string_view name) const {
    const Opened opened = open(name);
    if (!opened.exported) return "the export was removed";
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
