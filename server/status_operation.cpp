#include "server/status_operation.hpp"

#include "server/session.hpp"

namespace gpunbd::server {

namespace {

// A reply may stop short of the range: enough for 64 GiB of pages that alternate, in 256 KiB.
constexpr std::size_t most_extents = 32 * 1024;
constexpr std::uint32_t base_allocation_id = 0;

}  // namespace

void StatusOperation::start(Session& session, const protocol::Command& command) {
    attach(session, command);
    const storage::Volume& volume = session.volume();
    const std::size_t most = command.one_extent ? 1 : most_extents;
    extents_.clear();
    const std::uint64_t end = command.offset + command.length;
    for (std::uint64_t at = command.offset; at != end && extents_.size() != most;) {
        const storage::Volume::Run run = volume.run_at(at, end - at);
        extents_.push_back(
            {.length = static_cast<std::uint32_t>(run.length),
             .status = run.mapped ? 0 : protocol::state_hole | protocol::state_zero});
        at += run.length;
    }
    reply_.clear();
    protocol::append_block_status(reply_, command.cookie, base_allocation_id, extents_);
    Outbox::Item& item = session.outbox().add(this);
    item.header_length = 0;
    item.payload = reply_.data();
    item.payload_length = reply_.size();
    item.operation = this;
}

void StatusOperation::sent() { session_->finish(*this); }

void StatusOperation::abandon() { session_->finish(*this); }

}  // namespace gpunbd::server
