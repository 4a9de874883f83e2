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
#include "storage/assertions/assert.hpp"

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
    bool ready(std::string_view name) const override;
    std::string enter(std::string_view name) const override;
    std::string why_not(std::string_view name) const override;

    struct Opened {
        std::shared_ptr<const Export> exported;  // null: this peer may open none of that name
        protocol::ExportInfo info;               // for this peer
    };
    Opened open(std::string_view name) const;
    // The request for the clone for which the last ready() waits; call clone_answered() with the
    // answer before the next ready().
    CloneRequest take_clone_request() { return std::move(clone_request_); }
    void clone_answered(std::string why_not) {
        GPUNBD_ASSERT(!answered_, "a request for a clone has one answer");
        answered_ = true;
        refusal_ = std::move(why_not);
    }
    // The lease of the last successful enter(), for its connection.
    std::unique_ptr<ExportUse::Lease> take_lease() { return std::move(lease_); }

 private:
    // What a name that a client asks for leads to.
    struct Target {
        std::string name;                                              // of the export
        std::shared_ptr<const ExportTemplate> its_template = nullptr;  // from which it is made
        ExportTemplate::Client client = {};
        Verdict verdict = {};  // of the template
    };
    Target target_of(std::string_view name) const;
    std::optional<protocol::ExportInfo> info_of_clones(const ExportTemplate& its_template,
                                                       const Verdict& verdict) const;

    const ExportRegistry& exports_;
    const Peer& peer_;
    // mutable because the negotiation sees ready() and enter() as queries.
    mutable std::unique_ptr<ExportUse::Lease> lease_;
    mutable CloneRequest clone_request_;
    mutable bool answered_ = false;  // clone_answered() was called after the last ready()
    mutable std::string refusal_;    // why there is no clone
};

}  // namespace gpunbd::server
