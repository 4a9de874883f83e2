// BLOCK_STATUS: the page table, told as the extents of each context that was asked about.
#pragma once

#include <cstddef>
#include <vector>

#include "server/operations/operation.hpp"

namespace gpunbd::server {

class StatusOperation : public Operation {
 public:
    // Bytes that its answer takes at most, whatever is asked.
    static std::uint64_t max_memory(const protocol::Command& command, std::uint64_t page_size);

    void sent() override;
    void abandon() override;
    void return_to(OperationPools& pools) override;

 private:
    void begin() override;
    void moved() override {}
    void find_extents(protocol::MetaContext context, std::vector<protocol::Extent>& extents) const;

    std::vector<std::byte> reply_;
};

}  // namespace gpunbd::server
