// The exports as one peer may see them: what it may not open, it cannot tell from what there is
// not.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/export_use.hpp"
#include "server/connection/peer.hpp"
#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

class OfferedExports final : public protocol::ExportDirectory {
 public:
    // Both outlive it. What the peer proves later counts from then on.
    OfferedExports(const ExportRegistry& exports, const Peer& peer)
        : exports_(exports), peer_(peer) {}

    std::vector<protocol::ExportInfo> list() const override;
    // The same work, whether there is one of that name or not.
    std::optional<protocol::ExportInfo> find(std::string_view name) const override;
    std::string enter(std::string_view name) const override;
    std::string why_not(std::string_view name) const override;

    struct Opened {
        std::shared_ptr<const Export> exported;  // null: there is none for this peer
        protocol::ExportInfo info;               // as it is for this peer
    };
    Opened open(std::string_view name) const;
    // That of the last enter() that went well; its connection keeps it.
    std::unique_ptr<ExportUse::Place> take_place() { return std::move(place_); }

 private:
    const ExportRegistry& exports_;
    const Peer& peer_;
    // To the negotiation nothing changes by entering.
    mutable std::unique_ptr<ExportUse::Place> place_;
};

}  // namespace gpunbd::server
