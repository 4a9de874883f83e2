#include <fmt/format.h>

#include <utility>

#include "server/nbd/session.hpp"

namespace gpunbd::server {

void Session::check_access() noexcept {
    if (negotiation_) return;
    try {
        follow_name();
        std::string why = reason_to_close();
        refused_ = !why.empty();
        if (connection_->closed()) return;
        connection_->follow_size();
        if (refused_) {
            connection_->close(std::move(why));
        } else if (lease_) {
            connection_->limit_rates(lease_->rates());
        }
    } catch (const std::exception&) {
        refused_ = true;
        cut(Connection::no_memory);
    }
}

void Session::follow_name() {
    std::string name = lease_ ? lease_->export_name() : export_name_;
    if (name == export_name_) return;
    connection_->follow_name(name);
    export_name_ = std::move(name);
    publish_facts();
}

std::string Session::reason_to_close() const {
    if (std::string why = lease_ ? lease_->disconnected() : ""; !why.empty()) return why;
    const auto now = exports_.open(export_name_);
    if (!now || now->info.name != export_name_)
        return {};  // the export was removed; its connections stay
    const Verdict verdict = now->access.decide(PeerIdentity(peer_));
    const bool writes = !connection_->export_info().read_only;
    if (lease_ && lease_->requires_current_size() &&
        connection_->export_info().size != now->info.size) {
        return "the export has another size now";
    }
    if (now->info.read_only && writes) return "the export is now read-only";
    if (verdict.access == Access::denied) {
        return fmt::format("the new configuration denies access to the export: {}",
                           now->access.why(verdict));
    }
    if (verdict.access == Access::read_only && writes) {
        return fmt::format("the new configuration permits only reading: {}",
                           now->access.why(verdict));
    }
    return {};
}

}  // namespace gpunbd::server
