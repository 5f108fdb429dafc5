"""Page texts of the login kit, in English, Japanese and Korean."""

from __future__ import annotations

from typing import Final

from keystead.kits.language import Messages

# Each text in English, Japanese and Korean: the order of `LANGUAGES`.
MESSAGES: Final[Messages] = {
    # --- signing in
    "sign_in": ("Sign in", "サインイン", "로그인"),
    "choose_provider": (
        "Choose a sign-in provider.",
        "サインインに使うサービスを選んでください。",
        "로그인에 사용할 서비스를 선택하세요.",
    ),
    "demo": ("Demo, no account needed", "デモ(アカウント不要)", "데모(계정 불필요)"),
    "no_provider": (
        (
            "No sign-in provider is configured. Set DISCORD_CLIENT_ID and DISCORD_CLIENT_SECRET, or add "
            "[login.providers.NAME] to keystead.toml, and restart."
        ),
        (
            "サインインに使うサービスが設定されていません。DISCORD_CLIENT_ID と DISCORD_CLIENT_SECRET を設定するか、"
            "keystead.toml に [login.providers.NAME] を書いて、再起動してください。"
        ),
        (
            "로그인에 사용할 서비스가 설정되지 않았습니다. DISCORD_CLIENT_ID와 DISCORD_CLIENT_SECRET을 설정하거나 "
            "keystead.toml에 [login.providers.NAME]을 쓰고 다시 시작하세요."
        ),
    ),
    "gone_evicted": (
        "You were signed out here because you signed in on another device.",
        "別のデバイスでサインインしたため、ここではサインアウトされました。",
        "다른 기기에서 로그인하여 여기에서는 로그아웃되었습니다.",
    ),
    "gone_revoked": (
        "This session was ended. Sign in again.",
        "このセッションは終了しました。もう一度サインインしてください。",
        "이 세션은 종료되었습니다. 다시 로그인하세요.",
    ),
    "gone_expired": (
        "This session has expired. Sign in again.",
        "このセッションは期限が切れました。もう一度サインインしてください。",
        "이 세션은 만료되었습니다. 다시 로그인하세요.",
    ),
    "signed_in": ("Signed in", "サインインしました", "로그인됨"),
    "welcome": ("Welcome, {name}", "ようこそ、{name} さん", "{name} 님, 환영합니다"),
    "you_are_signed_in": ("You are signed in.", "サインインしました。", "로그인되었습니다."),
    "go_on": ("Continue", "続ける", "계속하기"),
    "back_to_app": ("Go back to the app", "アプリに戻ってください", "앱으로 돌아가세요"),
    "app_is_signed_in": (
        "The app is signed in as {name}. You can close this page.",
        "アプリに {name} としてサインインしました。このページは閉じてかまいません。",
        "앱에 {name}(으)로 로그인했습니다. 이 페이지를 닫아도 됩니다.",
    ),
    # --- is this you?
    "is_this_you": ("Is this you?", "ご本人ですか?", "본인이 맞습니까?"),
    "sign_in_as": ("Sign in as {name}?", "{name} としてサインインしますか?", "{name}(으)로 로그인할까요?"),
    "browser_forgot": (
        "This browser has no record of this sign-in. Continue only if you started it yourself a moment ago.",
        "このブラウザーには、このサインインを始めた記録がありません。たった今ご自身で始めた場合にだけ続けてください。",
        "이 브라우저에는 이 로그인을 시작한 기록이 없습니다. 방금 직접 시작한 경우에만 계속하세요.",
    ),
    "app_asked": (
        "An app wants to sign in as {name}. It shows a four-digit code while it waits.",
        "アプリが {name} としてのサインインを求めています。待っている間、アプリには 4 桁のコードが表示されます。",
        "앱이 {name}(으)로 로그인하려고 합니다. 기다리는 동안 앱에는 네 자리 코드가 표시됩니다.",
    ),
    "which_code": (
        "Which code does your app show?",
        "アプリに表示されているコードはどれですか?",
        "앱에 표시된 코드는 어느 것입니까?",
    ),
    "code_warning": (
        (
            "If somebody sent you the link, or you see no code on your own device, this sign-in is not yours: the "
            "person who started it would get access to your account."
        ),
        (
            "誰かから届いたリンクを開いた場合や、ご自身のデバイスにコードが表示されていない場合、このサインインはあなたの"
            "ものではありません。始めた人があなたのアカウントを使うことになります。"
        ),
        (
            "누군가 보낸 링크를 열었거나 본인의 기기에 코드가 보이지 않는다면 본인의 로그인이 아닙니다. 시작한 사람이 "
            "본인의 계정을 쓰게 됩니다."
        ),
    ),
    "choose_code": ("The app shows {code}", "アプリの表示は {code}", "앱의 코드는 {code}"),
    "not_me": ("No, that was not me", "いいえ、私ではありません", "아니요, 제가 아닙니다"),
    "yes_sign_in": (
        "Yes, sign in as {name}",
        "はい、{name} としてサインインします",
        "네, {name}(으)로 로그인합니다",
    ),
    # --- session cap reached
    "full_title": ("Too many sessions", "セッションが多すぎます", "세션이 너무 많습니다"),
    "full": (
        "You are signed in on the maximum number of devices",
        "サインインできるデバイスの上限に達しています",
        "로그인할 수 있는 기기 수에 도달했습니다",
    ),
    "full_lead": (
        "To sign in here as {name}, end one of these sessions.",
        "{name} としてここでサインインするには、次のセッションのいずれかを終了してください。",
        "{name}(으)로 여기에서 로그인하려면 다음 세션 중 하나를 종료하세요.",
    ),
    "end_and_go_on": ("End this and sign in", "これを終了してサインイン", "이 세션을 끝내고 로그인"),
    "do_not_sign_in": ("Do not sign in here", "ここではサインインしない", "여기에서 로그인하지 않기"),
    # --- sessions
    "your_sessions": ("Your sessions", "あなたのセッション", "내 세션"),
    "hello": ("Hello, {name}", "こんにちは、{name} さん", "{name} 님, 안녕하세요"),
    "signed_in_with": (
        "You are signed in with {provider}.",
        "{provider} でサインインしています。",
        "{provider}(으)로 로그인했습니다.",
    ),
    "provider_refused": (
        (
            "{provider} no longer lets this site act for you. Your session here continues; sign in again to renew "
            "the permission."
        ),
        (
            "{provider} がこのサイトへの許可を取り消しました。ここでのセッションは続きます。許可を更新するには、"
            "もう一度サインインしてください。"
        ),
        (
            "{provider}에서 더 이상 이 사이트를 허용하지 않습니다. 이곳의 세션은 계속됩니다. 허용을 갱신하려면 다시 "
            "로그인하세요."
        ),
    ),
    "sign_in_again": ("Sign in again", "もう一度サインイン", "다시 로그인"),
    "where_signed_in": ("Where you are signed in", "サインインしている場所", "로그인한 곳"),
    "device": ("Device", "デバイス", "기기"),
    "signed_in_at": ("Signed in", "サインイン", "로그인"),
    "last_seen": ("Last seen", "最終利用", "마지막 사용"),
    "end": ("End", "終了", "종료"),
    "end_this": ("End this session: {what}", "このセッションを終了: {what}", "이 세션 종료: {what}"),
    "this_browser": ("this browser", "このブラウザー", "이 브라우저"),
    "on": ("{browser} on {device}", "{device} の {browser}", "{device}의 {browser}"),
    "unknown_device": ("Unknown device", "不明なデバイス", "알 수 없는 기기"),
    "times_are_utc": ("Times are in UTC.", "時刻は UTC です。", "시간은 UTC 기준입니다."),
    "times_are_in": (
        "Times are in your time zone, {zone}.",
        "時刻はあなたのタイムゾーン({zone})です。",
        "시간은 내 시간대({zone}) 기준입니다.",
    ),
    "sign_out_others": ("Sign out everywhere else", "ほかの場所からサインアウト", "다른 모든 곳에서 로그아웃"),
    "sign_out_everywhere": ("Sign out everywhere", "すべての場所からサインアウト", "모든 곳에서 로그아웃"),
    # --- confirmations
    "sign_out_everywhere?": (
        "Sign out everywhere?",
        "すべての場所からサインアウトしますか?",
        "모든 곳에서 로그아웃할까요?",
    ),
    "everywhere_lead_one": (
        "You are signed in on this device only. You will have to sign in again here.",
        "サインインしているのはこのデバイスだけです。ここでもう一度サインインが必要になります。",
        "이 기기에서만 로그인되어 있습니다. 여기에서 다시 로그인해야 합니다.",
    ),
    "everywhere_lead": (
        "You are signed in on {count} devices, this one included. You will have to sign in again on each of them.",
        "このデバイスを含む {count} 台でサインインしています。それぞれでもう一度サインインが必要になります。",
        "이 기기를 포함해 {count}대에서 로그인되어 있습니다. 각각 다시 로그인해야 합니다.",
    ),
    "stay": ("No, stay signed in", "いいえ、サインインしたままにする", "아니요, 로그인 상태로 두기"),
    "again_first": ("Sign in again first", "先にもう一度サインインしてください", "먼저 다시 로그인하세요"),
    "again_lead": (
        "You signed in too long ago to end other sessions. Nothing was ended.",
        "サインインから時間がたっているため、ほかのセッションを終了できません。何も終了していません。",
        "로그인한 지 오래되어 다른 세션을 종료할 수 없습니다. 종료된 세션은 없습니다.",
    ),
    "back_to_sessions": ("Back to your sessions", "セッションの一覧に戻る", "내 세션으로 돌아가기"),
    # --- errors
    "not_signed_in": ("You are not signed in", "サインインできませんでした", "로그인되지 않았습니다"),
    "did_not_agree": (
        "You did not authorize this site at {provider}.",
        "{provider} で同意しませんでした。",
        "{provider}에서 동의하지 않았습니다.",
    ),
    "provider_said_no": (
        "{provider} refused the sign-in ({word}).",
        "{provider} がサインインを拒否しました({word})。",
        "{provider}에서 로그인을 거부했습니다({word}).",
    ),
    "try_again": ("Try again", "もう一度試す", "다시 시도"),
    "go_back": ("Go back", "戻る", "돌아가기"),
    "STATE_INVALID": (
        "This sign-in has expired or was not started here. Start again.",
        "このサインインは終了したか、ここで始まったものではありません。もう一度始めてください。",
        "이 로그인은 끝났거나 여기에서 시작되지 않았습니다. 다시 시작하세요.",
    ),
    "UNKNOWN_PROVIDER": (
        "This sign-in provider is not available here.",
        "このサインインのサービスはここでは使えません。",
        "여기에는 그런 로그인 서비스가 없습니다.",
    ),
    "TRY_AGAIN": (
        "This sign-in could not be started. Try again.",
        "サインインを始められませんでした。もう一度お試しください。",
        "로그인을 시작할 수 없었습니다. 다시 시도하세요.",
    ),
    "BAD_CALLBACK": (
        "The response of the provider is incomplete. Start again.",
        "サービスからの応答が不完全です。もう一度始めてください。",
        "서비스의 응답이 완전하지 않습니다. 다시 시작하세요.",
    ),
    "CODE_WRONG": (
        "That is not the code in your app. You were not signed in. Start again in the app.",
        "アプリに表示されているコードと違います。誰もサインインしていません。アプリでもう一度始めてください。",
        "앱에 표시된 코드와 다릅니다. 아무도 로그인되지 않았습니다. 앱에서 다시 시작하세요.",
    ),
    "PROVIDER_REFUSED": (
        "The provider did not confirm this sign-in. Start again.",
        "サービスがこのサインインを確認しませんでした。もう一度始めてください。",
        "서비스에서 이 로그인을 확인하지 않았습니다. 다시 시작하세요.",
    ),
    "PROVIDER_UNAVAILABLE": (
        "The provider is not responding. Try again later.",
        "サービスが今は応答しません。しばらくしてからもう一度お試しください。",
        "서비스가 지금 응답하지 않습니다. 나중에 다시 시도하세요.",
    ),
    "RATE_LIMITED": (
        "Too many requests from your network. Wait a minute, then try again.",
        "リクエストが多すぎます。1 分ほど待ってからもう一度お試しください。",
        "요청이 너무 많습니다. 1분 정도 기다린 뒤 다시 시도하세요.",
    ),
}
