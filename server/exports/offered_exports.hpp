// The exports that one peer can use. A peer cannot distinguish exports that it may not open from
// those that do not exist.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/peer.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/export_use.hpp"

namespace gpunbd::server {

class OfferedExports final : public protocol::ExportDirectory {
 public:
    // Both must outlive this object. Later changes of `peer`, such as a TLS identity, count.
    OfferedExports(const ExportRegistry& exports, const Peer& peer)
        : exports_(exports), peer_(peer) {}

    protocol::Listing list() const override;
    std::optional<protocol::ExportInfo> next(protocol::Listing& listing) const override;
    // Takes the same time whether the export exists or not.
    std::optional<protocol::ExportInfo> find(std::string_view name) const override;
    std::string enter(std::string_view name) const override;
    std::string why_not(std::string_view name) const override;

    struct Opened {
        std::shared_ptr<const Export> exported;  // null: this peer may open none of that name
        protocol::ExportInfo info;               // for this peer
    };
    Opened open(std::string_view name) const;
    // The lease of the last successful enter(), for its connection.
    std::unique_ptr<ExportUse::Lease> take_lease() { return std::move(lease_); }

 private:
    const ExportRegistry& exports_;
    const Peer& peer_;
    // mutable because the negotiation sees enter() as a query.
    mutable std::unique_ptr<ExportUse::Lease> lease_;
};

}  // namespace gpunbd::server
