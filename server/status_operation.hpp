// BLOCK_STATUS: the page table, told as base:allocation extents.
#pragma once

#include <cstddef>
#include <vector>

#include "protocol/reply.hpp"
#include "server/operation.hpp"

namespace gpunbd::server {

class StatusOperation final : public Operation {
 public:
    void start(Session& session, const protocol::Command& command);

    void transfer_moved(storage::Transfer&) override {}
    void sent() override;
    void abandon() override;

 private:
    std::vector<protocol::Extent> extents_;
    std::vector<std::byte> reply_;
};

}  // namespace gpunbd::server
