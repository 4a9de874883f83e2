// BLOCK_STATUS: reports the page table as extents, for each context that the request names.
#pragma once

#include <cstddef>
#include <vector>

#include "server/nbd/operation.hpp"

namespace gpunbd::server {

class StatusOperation : public Operation {
 public:
    // A reply may end before the range does ("NBD_CMD_BLOCK_STATUS"), so a request reads no more
    // pages than fit into a turn of its connection. In the worst case each page is an extent. At
    // the default page size it is 4 GiB, the longest request without extended headers.
    static constexpr std::uint64_t max_pages = 2048;

    // The most pages that each context reads.
    static std::uint64_t pages_read(const protocol::Command& command, std::uint64_t page_size);
    // The most bytes that its answer takes.
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
