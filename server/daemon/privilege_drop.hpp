// Gives up the right to gain privileges by executing set-user-ID programs.
#pragma once

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class PrivilegeDrop final : public Service {
 public:
    explicit PrivilegeDrop(ServerContext& context) : context_(context) {}

    void open() override;

 private:
    ServerContext& context_;
};

}  // namespace gpunbd::server
